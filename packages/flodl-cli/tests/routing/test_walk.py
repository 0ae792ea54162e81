import pytest

from flodl_cli.config.resolve import resolve
from flodl_cli.config.tree import Level, Preset, RunCommand
from flodl_cli.context.flags import scan
from flodl_cli.errors import ConfigErrors, UsageError
from flodl_cli.names import BUILTIN_COMMANDS
from flodl_cli.routing.walk import RunEntry, RunScript, ShowHelp, walk

ROOT = """\
commands:
  test: {run: pytest}
  bench: {path: bench}
  tools: {path: tools}
  broken: {path: broken}
"""
BENCH = """\
entry: python -m bench
commands:
  quick: {args: [--fast]}
  deep: {path: deep}
"""


@pytest.fixture
def level(project):
    project.write("bench/fdl.yml", BENCH)
    project.write("bench/deep/fdl.yml", "commands: {er: {run: 'true'}}\n")
    project.write("tools/fdl.yml", "commands: {clean: {run: make clean}}\n")
    project.write("broken/fdl.yml", "x: 1\n")
    return resolve(str(project.manifest(ROOT))).level


def asked(level, *argv):
    return walk(level, scan(argv))


def refused(level, *argv):
    with pytest.raises(UsageError) as caught:
        asked(level, *argv)
    return caught.value


def test_run_command_takes_the_tail(level):
    outcome = asked(level, "test", "--", "-k", "a b", "--", "c")
    assert isinstance(outcome, RunScript)
    assert outcome.tail == ("-k", "a b", "--", "c")


def test_words_before_the_separator_are_refused_with_the_corrected_line(level):
    error = refused(level, "-v", "test", "-k", "a b")
    assert error.message == "test takes no words before --, and got -k 'a b'"
    assert error.hint == "write: fdl -v test -- -k 'a b'"
    assert refused(level, "test", "x", "--", "y").hint == "write: fdl test -- x y"


def test_preset_and_entry_take_all_other_words(level):
    preset = asked(level, "bench", "quick", "--lr", "1", "--", "--help")
    assert isinstance(preset, RunEntry)
    assert preset.program.args == ("--fast",)
    assert preset.words == ("--lr", "1", "--help")
    entry = asked(level, "bench", "--list", "quick")
    assert isinstance(entry, RunEntry)
    assert entry.program.args == ()
    assert entry.words == ("--list", "quick")


def test_files_are_those_on_the_way(level, project):
    outcome = asked(level, "bench", "quick")
    assert isinstance(outcome, RunEntry)
    assert outcome.files == (f"{project.root}/fdl.yml", f"{project.root}/bench/fdl.yml")


def test_help_is_of_the_level_that_was_reached(level):
    for words, kind in (
        (["test"], RunCommand),
        (["bench"], Level),
        (["bench", "quick"], Preset),
        (["bench", "deep", "er"], RunCommand),
    ):
        outcome = asked(level, *words, "--help")
        assert isinstance(outcome, ShowHelp)
        assert isinstance(outcome.target, kind)
        assert outcome.trail == tuple(words)
    beyond = asked(level, "bench", "nothing", "--help")
    assert isinstance(beyond, ShowHelp)
    assert beyond.trail == ("bench",)


def test_level_without_an_entry_shows_its_help(level):
    outcome = asked(level, "tools")
    assert isinstance(outcome, ShowHelp)
    assert outcome.trail == ("tools",)


def test_unknown_word_below_names_that_level(level):
    error = refused(level, "tools", "claen")
    assert error.message == "unknown command 'claen' in tools; commands: clean"
    assert error.hint == "did you mean clean?"


def test_tail_for_a_level_without_an_entry_is_refused(level):
    assert "tools has no entry that could take x" in refused(level, "tools", "--", "x").message


def test_way_into_a_broken_manifest_raises_its_problems(level):
    with pytest.raises(ConfigErrors):
        asked(level, "broken")


def test_unknown_command_lists_built_in_ones_too(level):
    error = refused(level, "tst")
    names = ", ".join([*BUILTIN_COMMANDS, "test", "bench", "tools", "broken"])
    assert error.message == f"unknown command 'tst'; commands: {names}"
    assert error.hint == "did you mean test?"
