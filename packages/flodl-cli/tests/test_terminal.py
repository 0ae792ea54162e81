import io
import os

import pytest

from flodl_cli.errors import ConfigError, FdlError, UsageError
from flodl_cli.terminal import (
    Paint,
    Terminal,
    columns,
    describe,
    hanging,
    terminal_width,
    wants_color,
    wrap,
)


class FakeStream(io.StringIO):
    def __init__(self, *, terminal):
        super().__init__()
        self._terminal = terminal

    def isatty(self):
        return self._terminal


@pytest.mark.parametrize(
    ("flag", "environ", "terminal", "expected"),
    [
        (None, {}, True, True),
        (None, {}, False, False),
        (None, {"FORCE_COLOR": "1"}, False, True),
        (None, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        (None, {"NO_COLOR": ""}, True, True),
        (None, {"FLODL_COLOR": "always", "NO_COLOR": "1"}, False, True),
        (None, {"FLODL_COLOR": "never", "FORCE_COLOR": "1"}, True, False),
        (None, {"FLODL_COLOR": "auto"}, True, True),
        (True, {"FLODL_COLOR": "never"}, False, True),
        (False, {"FLODL_COLOR": "always"}, True, False),
    ],
)
def test_color_follows_flag_then_variables_then_stream(flag, environ, terminal, expected):
    assert wants_color(FakeStream(terminal=terminal), flag, environ) is expected


@pytest.mark.parametrize(
    ("columns_variable", "expected"), [("72", 72), ("10", 60), ("500", 120), ("wide", 100)]
)
def test_width_is_kept_between_60_and_120(columns_variable, expected, monkeypatch):
    monkeypatch.setattr("os.get_terminal_size", lambda _fd: (_ for _ in ()).throw(OSError()))
    assert terminal_width({"COLUMNS": columns_variable}) == expected


def test_long_name_has_a_line_of_its_own():
    name = "a-name-that-is-much-longer-than-the-others"
    assert columns([("short", "one two"), (name, "three")], width=60, paint=Paint(on=False)) == [
        "  short  one two",
        f"  {name}",
        "         three",
    ]


def test_color_does_not_shift_columns():
    plain = columns([("a", "x"), ("bcd", "y")], width=60, paint=Paint(on=False))
    painted = columns([("a", "x"), ("bcd", "y")], width=60, paint=Paint(on=True))
    assert [line.replace("\x1b[36m", "").replace("\x1b[0m", "") for line in painted] == plain


def test_wrap_keeps_words_whole():
    assert wrap("aa bb cc-which-is-long dd", 6) == ["aa bb", "cc-which-is-long", "dd"]


def test_error_names_file_line_and_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = ConfigError("wrong", file=str(tmp_path / "a/fdl.yml"), line=3, key_path="x.y")
    assert describe(error) == "a/fdl.yml:3: x.y: wrong"
    elsewhere = ConfigError("wrong", file="/elsewhere/fdl.yml")
    assert describe(elsewhere) == "/elsewhere/fdl.yml: wrong"
    assert describe(FdlError("plain")) == "plain"


def test_only_lines_that_do_not_fit_are_wrapped():
    assert hanging("  a  b\n  aa  bb cc dd", 10, indent=2) == [
        "  a  b",
        "  aa  bb",
        "    cc dd",
    ]
    assert hanging("path: /a/path/wider/than/all of it", 10, indent=2) == [
        "path:",
        "  /a/path/wider/than/all",
        "  of it",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_remarks_are_wrapped_for_people_and_whole_for_programs(monkeypatch, terminal):
    stream = FakeStream(terminal=terminal)
    monkeypatch.setattr("sys.stderr", stream)
    words = " ".join(["word"] * 20)
    error = UsageError(words, hint=words)
    Terminal(color=False, environ={"COLUMNS": "60"}).error(error)
    lines = stream.getvalue().splitlines()
    if terminal:
        assert max(len(line) for line in lines) <= 60
        assert [line[:7] for line in lines] == ["error: ", "  word ", "hint: w", "  word "]
        assert " ".join(" ".join(lines).split()) == f"error: {words} hint: {words}"
    else:
        assert lines == [f"error: {words}", f"hint: {words}"]


def test_width_is_that_of_stderr_where_stdout_is_no_terminal(monkeypatch):
    class Stream(FakeStream):
        def fileno(self):
            return int(self.isatty())

    def size(descriptor):
        if descriptor == 0:
            raise OSError
        return os.terminal_size((77, 24))

    monkeypatch.setattr("sys.__stdout__", Stream(terminal=False))
    monkeypatch.setattr("sys.__stderr__", Stream(terminal=True))
    monkeypatch.setattr("os.get_terminal_size", size)
    assert terminal_width({}) == 77
