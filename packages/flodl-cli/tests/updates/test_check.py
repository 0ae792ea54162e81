import pytest

from flodl_cli import __main__ as front_door
from flodl_cli import __version__
from flodl_cli.host import system
from flodl_cli.terminal import Terminal
from flodl_cli.updates import check, settings
from flodl_cli.updates.check import DAY_S, installed_versions, is_newer, is_wanted, nudge
from flodl_cli.updates.settings import change_settings, read_settings

NOW = 1_000_000.0


@pytest.fixture
def looks(monkeypatch):
    """Every time that a look was started."""
    started = []
    monkeypatch.setattr(check, "_look", started.append)
    return started


@pytest.fixture
def file(tmp_path, monkeypatch):
    file = tmp_path / "user" / "config.json"
    monkeypatch.setattr(settings, "settings_file", lambda: file)
    return file


def said(capfd, directory, now=NOW):
    capfd.readouterr()
    nudge(str(directory), Terminal(color=False), now=now)
    return capfd.readouterr().err


def test_the_first_run_tells_how_to_turn_it_off_and_looks(tmp_path, file, looks, capfd):
    text = said(capfd, tmp_path)
    assert "FDL_NO_UPDATE_CHECK=1" in text
    assert str(file) in text
    assert looks == [["flodl-cli", "flodl", "flodl-hf"]]
    assert said(capfd, tmp_path, NOW + 1) == ""
    assert len(looks) == 1


def test_a_day_later_it_looks_again_and_a_clock_set_back_does_not_stop_it(
    tmp_path, file, looks, capfd
):
    change_settings(file, first_run_seen=True, last_check=NOW)
    for moment, expected in ((NOW + DAY_S - 1, 0), (NOW + DAY_S, 1), (NOW - 50, 2)):
        said(capfd, tmp_path, moment)
        assert len(looks) == expected
        assert read_settings(file).last_check == (NOW if expected == 0 else moment)


@pytest.mark.usefixtures("looks")
def test_newer_versions_of_fdl_and_of_the_lock_are_told(tmp_path, file, capfd):
    change_settings(
        file,
        first_run_seen=True,
        last_check=NOW,
        latest_known={"flodl-cli": "99.0", "flodl": "1.10", "flodl-hf": "1.2", "other": "9"},
    )
    (tmp_path / "uv.lock").write_text(
        '[[package]]\nname = "flodl"\nversion = "1.9"\n'
        '[[package]]\nname = "flodl-hf"\nversion = "1.2"\n[[package]]\nname = "other"\n'
    )
    assert said(capfd, tmp_path) == (
        f"note: flodl-cli 99.0 is out; here is {__version__} (fdl install)\n"
        "note: flodl 1.10 is out; here is 1.9 (uv lock --upgrade-package flodl)\n"
    )


def test_turned_off_in_the_file_nothing_is_said_and_nobody_looks(tmp_path, file, looks, capfd):
    change_settings(file, enabled=False, latest_known={"flodl-cli": "99.0"})
    assert said(capfd, tmp_path) == ""
    assert looks == []


def test_a_file_that_cannot_be_written_costs_the_command_nothing(tmp_path, file, looks, capfd):
    file.parent.write_text("a file where the folder should be")
    assert "FDL_NO_UPDATE_CHECK" in said(capfd, tmp_path)
    assert looks == []


def test_variables_and_containers_turn_it_off(monkeypatch, tmp_path):
    monkeypatch.setattr(system, "_CONTAINER_MARKS", ())
    assert is_wanted({})
    assert not is_wanted({"CI": "true"})
    assert not is_wanted({"FDL_NO_UPDATE_CHECK": "1"})
    monkeypatch.setattr(system, "_CONTAINER_MARKS", (str(tmp_path),))
    assert not is_wanted({})


def test_versions_are_compared_as_versions():
    assert is_newer("1.10", "1.9")
    assert not is_newer("1.9", "1.9.0")
    assert not is_newer("what", "1.9")


def test_a_broken_lock_tells_only_fdl(tmp_path):
    (tmp_path / "uv.lock").write_text("[[")
    assert installed_versions(str(tmp_path / "deep")) == {"flodl-cli": __version__}


@pytest.mark.parametrize(
    ("words", "speaks"),
    [
        (["schema", "list"], True),
        (["schema", "list", "--json"], False),
        (["-q", "schema", "list"], False),
        (["schema", "--help"], False),
        (["--version"], False),
        ([], False),
    ],
)
def test_it_speaks_on_a_terminal_after_commands_alone(project, monkeypatch, words, speaks):
    project.manifest("commands: {}\n")
    asked = []
    monkeypatch.setattr(check, "nudge", lambda *given: asked.append(given))
    monkeypatch.setattr(check, "is_wanted", lambda environ: True)
    monkeypatch.setattr(front_door.sys, "stderr", _Terminal())
    assert front_door.main(words) == 0
    assert bool(asked) is speaks


def test_it_is_silent_in_a_pipe(project, monkeypatch):
    project.manifest("commands: {}\n")
    asked = []
    monkeypatch.setattr(check, "nudge", lambda *given: asked.append(given))
    monkeypatch.setattr(check, "is_wanted", lambda environ: True)
    assert project.fdl("schema", "list").code == 0
    assert asked == []


class _Terminal:
    def isatty(self):
        return True

    def write(self, text):
        return len(text)

    def flush(self):
        pass
