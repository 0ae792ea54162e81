import io
import logging
import subprocess
import sys

import pytest

from flodl.core import log
from flodl.core.log import Verbosity, warn_once


@pytest.fixture(autouse=True)
def own_settings(monkeypatch):
    monkeypatch.setattr(log, "_settings", log._Settings())
    monkeypatch.delenv("FLODL_VERBOSITY", raising=False)
    yield
    log.bridge_logging(False)


SHOWN = {
    "msg": (Verbosity.NORMAL, "out"),
    "verbose": (Verbosity.VERBOSE, "out"),
    "debug": (Verbosity.DEBUG, "err"),
    "trace": (Verbosity.TRACE, "err"),
    "error": (Verbosity.QUIET, "err"),
}


@pytest.mark.parametrize("level", list(Verbosity))
@pytest.mark.parametrize("function", SHOWN)
def test_a_message_is_shown_on_its_stream_from_its_level_on(function, level, capsys):
    least, stream = SHOWN[function]
    log.set_verbosity(level)
    getattr(log, function)("step {}", 3)
    captured = capsys.readouterr()
    shown = "step 3\n" if level >= least else ""
    other = "err" if stream == "out" else "out"
    assert (getattr(captured, stream), getattr(captured, other)) == (shown, "")
    assert log.enabled(least) == (level >= least)


def test_nothing_is_formatted_or_called_for_a_message_that_is_not_shown():
    class Explodes:
        def __format__(self, spec):
            raise AssertionError("formatted")

    def never():
        raise AssertionError("called")

    log.set_verbosity(Verbosity.NORMAL)
    log.debug("{}", Explodes())
    log.trace("{}", never)
    log.verbose(never)


def test_callables_are_called_when_shown(capsys):
    log.msg(lambda: "a {} {}", lambda: "b", "c")
    log.msg(lambda: "whole")
    assert capsys.readouterr().out == "a b c\nwhole\n"


def test_braces_stand_for_themselves_without_arguments(capsys):
    log.msg("{loss}")
    assert capsys.readouterr().out == "{loss}\n"


def test_the_level_argument_chooses_the_stream(capsys):
    log.set_verbosity(Verbosity.TRACE)
    log.msg("deep", level=Verbosity.TRACE)
    assert capsys.readouterr() == ("", "deep\n")


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("0", Verbosity.QUIET),
        ("quiet", Verbosity.QUIET),
        ("Verbose", Verbosity.VERBOSE),
        ("4", Verbosity.TRACE),
        (" DEBUG ", Verbosity.DEBUG),
        ("", Verbosity.NORMAL),
    ],
)
def test_the_environment_sets_the_level(text, level, monkeypatch):
    monkeypatch.setenv("FLODL_VERBOSITY", text)
    assert log.verbosity() is level


def test_an_unset_environment_means_normal():
    assert log.verbosity() is Verbosity.NORMAL


def test_set_verbosity_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("FLODL_VERBOSITY", "trace")
    log.set_verbosity(Verbosity.QUIET)
    assert log.verbosity() is Verbosity.QUIET


def test_the_environment_is_read_once(monkeypatch):
    monkeypatch.setenv("FLODL_VERBOSITY", "debug")
    assert log.enabled(Verbosity.DEBUG)
    monkeypatch.setenv("FLODL_VERBOSITY", "quiet")
    assert log.enabled(Verbosity.DEBUG)


def test_a_bad_environment_warns_once_and_lists_what_is_legal(monkeypatch, capsys):
    monkeypatch.setenv("FLODL_VERBOSITY", "loud")
    log.msg("a")
    log.msg("b")
    captured = capsys.readouterr()
    assert captured.out == "a\nb\n"
    assert captured.err == (
        "FLODL_VERBOSITY: 'loud' is no verbosity; there are 0 or quiet, 1 or normal, "
        "2 or verbose, 3 or debug, 4 or trace; using normal\n"
    )


def test_a_level_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="5"):
        log.set_verbosity(5)


def test_the_prefix_stands_before_every_line(capsys):
    log.set_prefix("rank 1")
    log.msg("a\nb")
    log.error("c")
    log.set_prefix("")
    log.msg("d")
    assert capsys.readouterr() == ("[rank 1] a\n[rank 1] b\nd\n", "[rank 1] c\n")


def test_each_message_is_flushed(monkeypatch):
    class Stream(io.StringIO):
        flushed = 0

        def flush(self):
            Stream.flushed += 1

    monkeypatch.setattr(sys, "stdout", Stream())
    log.msg("a")
    log.msg("b")
    assert Stream.flushed == 2


def test_a_missing_console_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    log.msg("a")


def test_a_broken_pipe_is_swallowed_to_the_end_of_the_process():
    code = "from flodl.core import log\nfor i in range(20000): log.msg('line {}', i)"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout.readline() == b"line 0\n"
    child.stdout.close()
    errors = child.stderr.read()
    child.stderr.close()
    assert child.wait(timeout=60) == 0
    assert errors == b""


@pytest.mark.parametrize(
    ("record_level", "least", "stream"),
    [
        (logging.ERROR, Verbosity.QUIET, "err"),
        (logging.WARNING, Verbosity.QUIET, "err"),
        (logging.INFO, Verbosity.NORMAL, "out"),
        (15, Verbosity.VERBOSE, "out"),
        (logging.DEBUG, Verbosity.DEBUG, "err"),
        (5, Verbosity.TRACE, "err"),
    ],
)
@pytest.mark.parametrize("level", list(Verbosity))
def test_bridged_records_follow_the_levels(record_level, least, stream, level, capsys):
    log.bridge_logging()
    log.set_verbosity(level)
    logging.getLogger("flodl.test_log").log(record_level, "read %d files", 3)
    captured = capsys.readouterr()
    assert getattr(captured, stream) == ("read 3 files\n" if level >= least else "")


def test_bridging_twice_shows_a_record_once_and_can_be_ended(capsys, caplog):
    logger = logging.getLogger("flodl.test_log")
    log.bridge_logging()
    log.bridge_logging()
    logger.info("once")
    assert capsys.readouterr().out == "once\n"
    log.bridge_logging(False)
    logger.warning("to the root again")
    assert caplog.messages == ["to the root again"]
    assert capsys.readouterr() == ("", "")


def test_the_same_warning_is_logged_once_and_another_again(caplog):
    logger = logging.getLogger("flodl.test_log")
    for reason in ("slow disk", "slow disk", "slow net"):
        warn_once(logger, "fell back: %s", reason)
    assert [record.getMessage() for record in caplog.records] == [
        "fell back: slow disk",
        "fell back: slow net",
    ]


def test_a_percent_sign_in_the_text_is_kept(caplog):
    warn_once(logging.getLogger("flodl.test_log"), "use 90% of it")
    assert caplog.records[0].getMessage() == "use 90% of it"
