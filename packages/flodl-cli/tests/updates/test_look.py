import pytest

from flodl_cli.host import packages
from flodl_cli.updates import look
from flodl_cli.updates.settings import change_settings, read_settings


@pytest.fixture
def file(tmp_path, monkeypatch):
    file = tmp_path / "config.json"
    monkeypatch.setattr(look, "settings_file", lambda: file)
    return file


@pytest.fixture
def only_fakes(tmp_path, monkeypatch):
    found = packages.shutil.which
    monkeypatch.setattr(packages.shutil, "which", lambda n: found(n, path=f"{tmp_path}/fakes"))


@pytest.mark.usefixtures("only_fakes")
def test_what_the_client_tells_is_kept_beside_what_was_known(file, fake_program):
    change_settings(file, last_check=7.0, latest_known={"flodl": "1.0", "flodl-hf": "1.0"})
    fake_program("uv", 'read name; [ "$name" = flodl-hf ] && exit 1; echo "$name==2.0"')
    assert look.main(["flodl-cli", "flodl", "flodl-hf"]) == 0
    settings = read_settings(file)
    assert settings.latest_known == {"flodl": "2.0", "flodl-hf": "1.0", "flodl-cli": "2.0"}
    assert settings.last_check == 7.0


@pytest.mark.usefixtures("only_fakes")
def test_without_a_client_nothing_is_written(file, monkeypatch):
    monkeypatch.setattr(packages.sys, "executable", "/bin/false")
    assert look.main(["flodl"]) == 1
    assert not file.exists()
