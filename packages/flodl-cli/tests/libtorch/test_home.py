import pytest

from flodl_cli.libtorch.home import find_home, is_project


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("libtorch/.active", "precompiled/cpu"),
        ("fdl.yml", ""),
        ("fdl.yaml.example", ""),
        ("pyproject.toml", '[project]\ndependencies = ["numpy", "flodl>=1"]'),
        ("pyproject.toml", '[project]\ndependencies = ["FloDL[extra]"]'),
    ],
)
def test_nearest_project_above_is_the_home(tmp_path, name, text):
    file = tmp_path / "p" / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    below = tmp_path / "p" / "a" / "b"
    below.mkdir(parents=True)
    home = find_home(below, {})
    assert (home.kind, home.path) == ("project", tmp_path / "p")
    assert str(home) == f"project ({tmp_path / 'p'})"


@pytest.mark.parametrize(
    "text", ['[project]\nname = "flodl"', '[project]\ndependencies = ["flodl-hf"]', "broken ="]
)
def test_mention_of_flodl_is_no_dependency(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    assert not is_project(tmp_path)


def test_home_of_the_user_is_next(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_home(tmp_path, {}).path == tmp_path / ".flodl"
    home = find_home(tmp_path, {"FLODL_HOME": str(tmp_path / "h")})
    assert (home.kind, home.libtorch) == ("global", tmp_path / "h" / "libtorch")


def test_flags_beat_the_project(tmp_path):
    (tmp_path / "fdl.yml").write_text("")
    environ = {"FLODL_HOME": str(tmp_path / "h")}
    assert find_home(tmp_path, environ, is_global=True).path == tmp_path / "h"
    given = find_home(tmp_path, environ, root=tmp_path / "r", is_global=True)
    assert (given.kind, given.path) == ("given", tmp_path / "r")
