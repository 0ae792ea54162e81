import json
import os
import sys
from pathlib import Path

import pytest

from flodl_cli.config.project import open_project
from flodl_cli.errors import FdlError
from flodl_cli.project.schema import (
    cache_file,
    known_schema,
    programs_below,
    refresh_schema,
    wants_probe,
)

PROGRAM = """
import sys
from dataclasses import dataclass
from typing import Annotated
from flodl_cli.args import option, parse_or_schema

@dataclass
class Args:
    '''Train.'''
    model: Annotated[str, option(short="m", choices=["mlp", "all"], help="Which")] = "all"
    epochs: Annotated[int, option(env="EPOCHS")] = 3

args = parse_or_schema(Args)
print("ran", args.model, args.epochs)
"""


@pytest.fixture
def training(project):
    project.write("train/main.py", PROGRAM)
    project.write("train/fdl.yml", f"entry: {sys.executable} main.py\n")
    project.manifest("commands: {train: null, t: {run: 'true'}}\n")
    return project


def program(project):
    return dict(programs_below(open_project(str(project.root))))["train"]


def test_schema_is_asked_for_kept_and_known_to_be_stale(training):
    asked = program(training)
    assert known_schema(asked) == (None, "none")
    assert training.fdl("schema", "refresh").out == "train: refreshed\n"
    assert known_schema(asked).status == "fresh"
    assert known_schema(asked).schema.option("model").short == "m"
    os.utime(training.root / "train" / "main.py", (1, 1))
    assert known_schema(asked).status == "stale"
    assert training.fdl("train", "--refresh-schema").code == 0
    assert known_schema(asked).status == "fresh"


def test_new_source_file_makes_it_stale_and_other_files_do_not(training):
    training.fdl("schema", "refresh", "train")
    training.write("train/runs/x.py", "")
    training.write("train/notes.txt", "")
    training.write("train/.hidden/x.py", "")
    assert known_schema(program(training)).status == "fresh"
    training.write("train/more.py", "")
    assert known_schema(program(training)).status == "stale"


def test_only_a_program_that_has_answered_is_asked_again(training):
    asked = program(training)
    assert not wants_probe(asked, known_schema(asked))
    assert wants_probe(asked._replace(probe="always"), known_schema(asked))
    training.fdl("schema", "refresh")
    training.write("train/more.py", "")
    assert wants_probe(asked, known_schema(asked))
    assert not wants_probe(asked._replace(probe="never"), known_schema(asked))


def test_damaged_cache_is_as_good_as_none(training):
    training.fdl("schema", "refresh")
    asked = program(training)
    for text in ("{", "[]", "{}", '{"schema": {"options": []}, "fingerprint": ""}'):
        Path(cache_file(asked)).write_text(text)
        assert known_schema(asked).status == "none"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("echo hello", "what it printed is no JSON: 'hello --fdl-schema"),
        ("sh -c 'echo broken >&2; exit 4'", "ended with 4: broken"),
        ("/nowhere/x", "cannot be run"),
        ("""echo '{"options": {"gpus": {}}}' #""", "is no JSON"),
    ],
)
def test_program_without_an_answer_is_an_error(training, entry, said):
    training.write("train/fdl.yml", f"entry: {json.dumps(entry)}\n")
    result = training.fdl("schema", "refresh")
    assert result.code == 1
    assert said in result.err


def test_all_are_asked_even_when_one_fails(training):
    training.manifest("entry: 'false'\ncommands: {train: {path: train}}\n")
    result = training.fdl("schema", "refresh")
    assert (result.code, result.out) == (1, "train: refreshed\n")


def test_schema_of_a_class_is_imported_without_the_entry(training, monkeypatch):
    training.write(
        "train/declared.py",
        "from dataclasses import dataclass\n@dataclass\nclass Args:\n    lr: float = 0.1\n",
    )
    training.write("train/fdl.yml", "entry: 'false'\nschema-from: declared:Args\n")
    (training.root / "train" / ".venv" / "bin").mkdir(parents=True)
    (training.root / "train" / ".venv" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert training.fdl("schema", "refresh").code == 0
    assert known_schema(program(training)).schema.option("lr").type == "float"


def test_answer_that_is_no_schema_is_an_error(training):
    asked = program(training)
    argv = ["echo", '{"options": {"gpus": {}}}']
    with pytest.raises(FdlError, match="gpus: fdl has an option"):
        refresh_schema(asked, argv, str(training.root), dict(os.environ))


def test_inline_schema_is_used_until_one_is_kept(training):
    training.write(
        "train/fdl.yml",
        f"entry: {sys.executable} main.py\nschema: {{options: {{a: {{type: int}}}}}}\n",
    )
    assert known_schema(program(training)).status == "inline"
    training.fdl("schema", "refresh")
    assert known_schema(program(training)).schema.option("a") is None
