import pytest


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_every_shell_has_a_script_that_asks_fdl(project, shell):
    result = project.fdl("completions", shell)
    assert (result.code, result.err) == (0, "")
    assert f"__complete {shell}" in result.out


def test_other_shell_is_misuse(project):
    assert project.fdl("completions", "csh").code == 2
    assert project.fdl("completions").code == 2
