import pytest

from flodl_cli import __version__
from flodl_cli.host import packages
from flodl_cli.updates import installation


@pytest.fixture
def home(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project.root))
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.delenv("XDG_BIN_HOME", raising=False)
    found = installation.shutil.which
    monkeypatch.setattr(
        installation.shutil, "which", lambda name: found(name, path=f"{project.root}/fakes")
    )
    return project


def test_the_program_is_named_and_the_line_for_the_path(home):
    result = home.fdl("install")
    assert result.out == f"installed by launcher: {home.root}/.local/bin/fdl\n"
    assert f'  export PATH="{home.root}/.local/bin:$PATH"' in result.err


@pytest.mark.parametrize(
    ("latest", "state"), [("99.1", "a newer one is out: fdl install"), ("0.0.1", "up to date")]
)
def test_check_tells_what_is_here_and_what_is_out(home, fake_program, latest, state):
    fake_program("uv", f"echo flodl-cli=={latest}")
    out = home.fdl("install", "--check").out
    assert out.startswith(f"Installed: {__version__}\nMode:      editable (")
    assert out.endswith(f"Latest:    {latest} ({state})\n")
    assert not (home.root / ".local").exists()


def test_check_without_an_answer_is_an_error(home, fake_program):
    fake_program("pip", "echo no such thing")
    result = home.fdl("install", "--check")
    assert (result.code, "told no version of flodl-cli" in result.err) == (1, True)
    assert result.out.startswith(f"Installed: {__version__}\nMode:      editable (")
    fake_program("pip", "echo 'WARNING: how old I am' >&2; echo 'ERROR: no answer' >&2; exit 1")
    assert "pip index failed: no answer\n" in home.fdl("install", "--check").err


def test_misuse(home):
    assert home.fdl("install", "--check", "--dev").code == 2
    assert "not inside a checkout" in home.fdl("install", "--dev").err


def test_pip_tells_the_newest_in_its_first_line(home, fake_program):
    fake_program("pip", "echo 'flodl-cli (0.3.1)'; echo 'Available versions: 0.3.1, 0.3.0'")
    assert packages.package_client().newest("flodl-cli") == "0.3.1"
