import io

import pytest

from flodl_cli.errors import ConfigError, FdlError
from flodl_cli.terminal import Paint, columns, describe, terminal_width, wants_color, wrap


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
