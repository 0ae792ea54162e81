import pytest

BLOCK = '# >>> fdl >>>\neval "$(fdl completions {})"\n# <<< fdl <<<\n'


@pytest.fixture(autouse=True)
def _home(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project.root))
    monkeypatch.setenv("SHELL", "/bin/bash")
    for name in ("ZDOTDIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_block_is_put_in_once_and_taken_out(project):
    file = project.write(".bashrc", "alias x=y")
    first = project.fdl("autocomplete")
    assert first.out == f"completion for bash added to {file}\n"
    assert file.read_text() == "alias x=y\n" + BLOCK.format("bash")
    assert "already in" in project.fdl("autocomplete").out
    assert project.fdl("autocomplete", "--remove").code == 0
    assert file.read_text() == "alias x=y\n"
    assert "not in" in project.fdl("autocomplete", "--remove").out


def test_old_block_is_replaced(project):
    file = project.write(".bashrc", "a\n# >>> fdl >>>\nold\n# <<< fdl <<<\nb\n")
    project.fdl("autocomplete")
    assert file.read_text() == "a\nb\n" + BLOCK.format("bash")


@pytest.mark.parametrize(
    ("shell", "name"), [("zsh", ".zshrc"), ("fish", ".config/fish/config.fish")]
)
def test_other_shells_have_their_own_file(project, shell, name):
    assert project.fdl("autocomplete", shell).code == 0
    assert f"fdl completions {shell}" in (project.root / name).read_text()


def test_linked_file_stays_a_link(project):
    real = project.write("dotfiles/bashrc", "")
    (project.root / ".bashrc").symlink_to(real)
    project.fdl("autocomplete")
    assert (project.root / ".bashrc").is_symlink()
    assert real.read_text() == BLOCK.format("bash")


def test_unknown_shell_and_unwritable_file_are_errors(project, monkeypatch):
    (project.root / ".zshrc").mkdir()
    assert "cannot be read" in project.fdl("autocomplete", "zsh").err
    monkeypatch.setenv("SHELL", "/bin/csh")
    result = project.fdl("autocomplete")
    assert result.code == 2
    assert "$SHELL is /bin/csh" in result.err
