import json
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import pytest

from flodl_cli.args import arg, option, parse, parse_or_schema
from flodl_cli.args.schema import schema_from_json


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Args:
    """Train a model."""

    source: Annotated[str, arg(help="Where from")]
    epochs: Annotated[int, option(short="e", help="How long", env="EPOCHS")] = 3
    color: Color = Color.RED


@dataclass
class Other:
    """Do something else."""

    fast: bool = False


def test_words_become_an_instance():
    assert parse(Args, ["a", "-e", "5", "--color", "blue"], {}) == Args("a", 5, Color.BLUE)
    assert parse_or_schema(Args, ["a"]) == Args("a")


def test_commands_have_their_own_arguments():
    assert parse_or_schema({"train": Args, "other": Other}, ["other", "--fast"]) == (
        "other",
        Other(fast=True),
    )


def test_schema_is_printed_as_one_json_object(capsys):
    with pytest.raises(SystemExit) as ended:
        parse_or_schema({"train": Args}, ["--fdl-schema"])
    assert ended.value.code == 0
    schema = schema_from_json(json.loads(capsys.readouterr().out))
    assert schema.commands["train"].option("epochs").default == 3


def test_schema_flag_after_the_separator_belongs_to_the_program():
    assert parse_or_schema(Args, ["--", "--fdl-schema"]).source == "--fdl-schema"


def test_help_names_everything(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/x/train.py"])
    with pytest.raises(SystemExit):
        parse_or_schema(Args, ["-h"])
    assert capsys.readouterr().out == (
        "Usage: train.py [OPTIONS] source\n"
        "\n"
        "Train a model.\n"
        "\n"
        "  source                Where from\n"
        "  -e, --epochs <INT>    How long [default: 3] [env: EPOCHS]\n"
        "      --color <STRING>  [default: red] [possible: red, blue]\n"
    )


@pytest.mark.parametrize(
    ("spec", "words", "said"),
    [
        (Args, ["a", "--epocs", "1"], "error: unknown option --epocs\nhint: did you mean --epochs"),
        (Args, [], "error: the argument source is missing"),
        ({"train": Args}, [], "error: the command is missing"),
        ({"train": Args}, ["trian"], "error: unknown command 'trian'"),
    ],
)
def test_misuse_ends_with_2_and_the_usage_on_stderr(capsys, spec, words, said):
    with pytest.raises(SystemExit) as ended:
        parse_or_schema(spec, words)
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (2, "")
    assert captured.err.startswith(said)
    assert "Usage: " in captured.err


def test_nothing_heavy_is_imported():
    heavy = "{'typer', 'pydantic', 'rich'}"
    code = f"import flodl_cli.args, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
