from typer.testing import CliRunner

from flodl_cli.app import app


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
    assert unknown.err.startswith("error: no such command 'chek'. Did you mean 'check'")


def test_help_of_a_built_in_command_works_anywhere_in_the_line(project):
    expected = project.fdl("config", "check", "--help")
    assert expected.code == 0
    assert "Usage: fdl config check" in expected.out
    assert project.fdl("-h", "config", "check") == expected


def test_built_in_group_without_a_command_shows_its_help(project):
    assert project.fdl("config") == project.fdl("config", "--help")
