import re

import pytest
from typer.testing import CliRunner

from flodl_cli.app import app
from flodl_cli.names import BUILTIN_COMMANDS, SUBCOMMANDS

EVERY_COMMAND = [
    *([name] for name in BUILTIN_COMMANDS),
    *([name, each] for name in SUBCOMMANDS if name != "completions" for each in SUBCOMMANDS[name]),
]


def test_app_is_the_tree_of_built_in_commands(project):
    project.manifest("commands: {test: {run: pytest}}\n")
    result = CliRunner().invoke(app, ["config", "check"])
    assert (result.exit_code, result.output) == (0, "fdl.yml: ok\n")


def test_app_help_lists_built_in_commands_without_rich(project):
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "  Show what the manifests come to" in result.output


def test_misuse_of_a_built_in_command_reads_like_every_error(project):
    assert project.fdl("config", "--frob") == (
        2,
        "",
        "error: no such option: --frob\nhint: `fdl config --help` lists what it takes\n",
    )
    unknown = project.fdl("config", "chek")
    assert unknown.code == 2
    assert unknown.err == (
        "error: unknown command 'chek' in config; commands: show, check, schema\n"
        "hint: did you mean check?\n"
    )
    assert project.fdl("config", "show", "--jsn").err == (
        "error: no such option: --jsn\n"
        "hint: did you mean --json? `fdl config show --help` lists what it takes\n"
    )
    assert project.fdl("libtorch", "env", "--shell", "ksh").err == (
        "error: invalid value for '--shell': "
        "'ksh' is not one of 'sh', 'fish', 'powershell', 'cmd'\n"
        "hint: `fdl libtorch env --help` lists what it takes\n"
    )


def test_help_of_a_built_in_command_works_anywhere_in_the_line(project):
    expected = project.fdl("config", "check", "--help")
    assert expected.code == 0
    assert "Usage: fdl config check" in expected.out
    assert project.fdl("-h", "config", "check") == expected


def test_built_in_group_without_a_command_shows_its_help(project):
    assert project.fdl("config") == project.fdl("config", "--help")


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_help_fits_the_terminal_and_ends_no_sentence_early(project, monkeypatch, words, width):
    monkeypatch.setenv("COLUMNS", str(width))
    plain = project.fdl(*words, "--help")
    assert (plain.code, plain.err) == (0, "")
    assert max(len(line) for line in plain.out.splitlines()) <= width
    assert not re.search(r"\.\.\.$", plain.out.partition("\n")[2], re.MULTILINE)
    painted = project.fdl("--ansi", *words, "--help").out
    assert "\x1b[1mUsage:\x1b[0m" in painted
    assert re.sub(r"\x1b\[[0-9]*m", "", painted) == plain.out


def test_arguments_are_named_as_they_are_typed(project):
    assert "Usage: fdl init [OPTIONS] NAME\n" in project.fdl("init", "--help").out
    assert "  NAME        Name of the project" in project.fdl("init", "--help").out
    assert "Usage: fdl config show [OPTIONS] [ENV]...\n" in project.fdl("config", "show", "-h").out
    assert "Usage: fdl libtorch remove [OPTIONS] VARIANT...\n" in (
        project.fdl("libtorch", "remove", "-h").out
    )
