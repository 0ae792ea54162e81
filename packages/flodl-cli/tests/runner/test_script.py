import pytest

from flodl_cli.config.tree import Place, RunCommand
from flodl_cli.runner.script import compose


def composed(run, append, *tail, with_append=True):
    command = RunCommand(
        name="test",
        description="",
        place=Place(file="fdl.yml", line=1, key_path="commands.test"),
        directory="/",
        run=run,
        append=append,
        env={},
        missing=(),
    )
    return compose(command, tail, append=with_append)


@pytest.mark.parametrize(
    ("run", "append", "tail", "expected"),
    [
        ("pytest", "-q", ["-k", "foo"], "pytest -q -k foo"),
        ("nox -s tests", "-- -q", ["-R"], "nox -s tests -R -- -q"),
        ("nox -s tests", "-- -q", ["-R", "--", "-k", "foo"], "nox -s tests -R -- -q -k foo"),
        ("nox -s tests", "-- -q", [], "nox -s tests -- -q"),
        ("nox -s tests", "-r -- -q", ["-R", "--", "x"], "nox -s tests -r -R -- -q x"),
        ("nox -s tests", "--", [], "nox -s tests --"),
        ("nox -s tests", "--", ["-R"], "nox -s tests -R --"),
        ("pytest", None, [], "pytest"),
        ("pytest", None, ["--"], "pytest"),
        ("pytest", None, ["a", "--"], "pytest a"),
        ("pytest", None, ["a", "--", "b", "--", "c"], "pytest a -- b -- c"),
    ],
)
def test_words_go_to_their_side_of_the_separator(run, append, tail, expected):
    assert composed(run, append, *tail) == expected


def test_no_append_leaves_only_what_the_user_wrote():
    assert (
        composed("nox -s tests", "-- -q", "--", "-k", "foo", with_append=False)
        == "nox -s tests -- -k foo"
    )
    assert composed("nox -s tests", "-- -q", with_append=False) == "nox -s tests"


def test_run_and_append_are_verbatim_and_user_words_are_quoted():
    assert (
        composed("echo $HOME | cat", '"$X" > log', "a b", "$y", "it's", "")
        == "echo $HOME | cat \"$X\" > log 'a b' '$y' 'it'\"'\"'s' ''"
    )


@pytest.mark.parametrize("append", ['-k "a -- b"', "-k 'a -- b'", "a\\ -- b", "--x --", "x--"])
def test_separator_is_found_only_where_the_shell_sees_one(append):
    expected = f"run {append} u" if append != "--x --" else "run --x u --"
    assert composed("run", append, "u") == expected
