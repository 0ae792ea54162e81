import builtins
import sys
import types

import pytest

from flodl.core.errors import LaunchError
from flodl.distributed.launch.method import program

WITH_FILE = types.SimpleNamespace(__file__="/x/train.py")
WITHOUT_FILE = types.SimpleNamespace()


@pytest.mark.parametrize(
    "words", [["train.py", "--lr", "1"], ["-m", "pkg"], ["-c", "import x"]], ids=str
)
def test_a_program_is_run_again(words):
    main = WITHOUT_FILE if words[0] == "-c" else WITH_FILE
    found = program("auto", orig_argv=["python", *words], main=main)
    assert found is not None
    assert found.words == tuple(words)


@pytest.mark.parametrize("words", [[], ["-"], ["-i"]])
def test_a_prompt_is_pickled_from(words):
    assert program("auto", orig_argv=["python", *words], main=WITHOUT_FILE) is None
    with pytest.raises(LaunchError, match="no program to run again"):
        program("script", orig_argv=["python", *words], main=WITHOUT_FILE)


def test_a_notebook_is_pickled_from_though_a_module_started_it(monkeypatch):
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    words = ["python", "-m", "ipykernel_launcher", "-f", "x.json"]
    assert program("auto", orig_argv=words, main=WITHOUT_FILE) is None
    with pytest.raises(LaunchError, match="notebook"):
        program("script", orig_argv=words, main=WITHOUT_FILE)


def test_a_prompt_after_a_script_is_a_prompt(monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert program("auto", orig_argv=["python", "-i", "t.py"], main=WITH_FILE) is None


def test_a_child_of_multiprocessing_is_not_run_again():
    words = [
        "python",
        "-c",
        "from multiprocessing.spawn import spawn_main",
        "--multiprocessing-fork",
    ]
    assert program("auto", orig_argv=words, main=WITHOUT_FILE) is None


@pytest.mark.parametrize("launch", ["spawn", "thread"])
def test_an_explicit_method_without_a_program_gets_none(launch):
    assert program(launch, orig_argv=["python", "train.py"], main=WITH_FILE) is None
