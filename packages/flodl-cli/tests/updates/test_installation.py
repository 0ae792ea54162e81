import os
import subprocess
from pathlib import Path

import pytest

from flodl_cli.errors import FdlError, UsageError
from flodl_cli.updates import installation
from flodl_cli.updates.installation import (
    bin_folder,
    find_checkout,
    install,
    install_checkout,
    path_line,
    this_installation,
)


@pytest.fixture
def clients(tmp_path, monkeypatch, fake_program):
    """Only the programs of the test are there; what they are called with is in ``calls``."""
    found = installation.shutil.which
    monkeypatch.setattr(installation.shutil, "which", lambda n: found(n, path=f"{tmp_path}/fakes"))
    return lambda name, code=0: fake_program(
        name, f'echo "{name} $@" >> {tmp_path}/calls; echo no >&2; exit {code}'
    )


def test_uv_is_asked_first_then_pipx(tmp_path, clients):
    environ = {"HOME": str(tmp_path)}
    clients("pipx")
    assert install(environ).means == "pipx install"
    clients("uv")
    done = install(environ)
    assert (done.means, done.program) == ("uv tool", tmp_path / ".local/bin/fdl")
    assert (tmp_path / "calls").read_text() == (
        "pipx install --force flodl-cli\nuv tool install --upgrade flodl-cli\n"
    )


def test_what_the_client_says_is_the_error(tmp_path, clients):
    clients("uv", 1)
    with pytest.raises(FdlError, match="uv tool install --upgrade flodl-cli failed: no"):
        install({"HOME": str(tmp_path)})


@pytest.mark.usefixtures("clients")
def test_without_a_client_a_launcher_starts_this_very_fdl(tmp_path):
    done = install({"HOME": str(tmp_path)})
    assert done.means == "launcher"
    said = subprocess.run([done.program, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("flodl-cli ")


def test_a_checkout_is_started_from_its_own_script(tmp_path):
    checkout = tmp_path / "a checkout"
    (checkout / "packages/flodl-cli/src").mkdir(parents=True)
    with pytest.raises(UsageError, match="is no checkout"):
        install_checkout(checkout, {})
    (checkout / "packages/flodl-cli/pyproject.toml").touch()
    script = checkout / "fdl"
    script.write_text('#!/bin/sh\necho "here: $*"\n')
    script.chmod(0o755)
    assert find_checkout(checkout / "packages/flodl-cli/src") == checkout
    assert find_checkout(tmp_path) is None
    done = install_checkout(checkout, {"XDG_BIN_HOME": str(tmp_path / "bin")})
    said = subprocess.run([done.program, "a", "b c"], capture_output=True, text=True, check=True)
    assert said.stdout == "here: a b c\n"
    with pytest.raises(FdlError, match="would start itself"):
        install_checkout(checkout, {"XDG_BIN_HOME": str(checkout)})
    assert script.read_text().startswith("#!/bin/sh\necho")


@pytest.mark.usefixtures("clients")
def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FdlError, match="cannot be written"):
        install({"XDG_BIN_HOME": str(tmp_path / "file" / "bin")})


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("/bin/fish", "fish_add_path /x/bin"),
        ("/bin/zsh", 'export PATH="/x/bin:$PATH"'),
        ("", 'export PATH="/x/bin:$PATH"'),
    ],
)
def test_the_line_for_the_path_is_that_of_the_shell(shell, line):
    folder = Path("/x/bin")
    assert path_line(folder, {"SHELL": shell, "PATH": "/bin"}) == line
    assert path_line(folder, {"PATH": f"/bin{os.pathsep}/x/bin"}) is None


@pytest.mark.parametrize(
    ("prefix", "mode"),
    [
        ("/h/.local/share/uv/tools/flodl-cli", "uv tool"),
        ("/h/.local/pipx/venvs/flodl-cli", "pipx"),
        ("/h/p/.venv", "environment"),
    ],
)
def test_the_mode_is_known_by_the_place(monkeypatch, prefix, mode):
    monkeypatch.setattr(installation, "_editable_source", lambda: None)
    assert this_installation(Path(prefix)).mode == mode


def test_an_editable_one_names_its_checkout():
    here = this_installation()
    assert here.mode == "editable"
    assert (here.place / "src" / "flodl_cli").is_dir()


def test_programs_go_to_the_folder_of_the_user():
    assert bin_folder({"HOME": "/h"}) == Path("/h/.local/bin")
    assert bin_folder({"HOME": "/h", "XDG_BIN_HOME": "/b"}) == Path("/b")
