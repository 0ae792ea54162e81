import tomllib

import pytest

from flodl_cli.errors import FdlError, UsageError
from flodl_cli.project.dependency import depends_on, flodl_version, with_dependency


def project_of(tmp_path, *dependencies, more=""):
    listed = ", ".join(f'"{each}"' for each in dependencies)
    text = f"[project]\nname = 'x'\ndependencies = [{listed}]  # mine\n{more}"
    (tmp_path / "pyproject.toml").write_text(text)
    return tmp_path


def test_the_lock_beats_the_environment_and_that_beats_a_pin(tmp_path):
    root = project_of(tmp_path, "numpy", "Flodl[rich] == 1.0.0 ; python_version > '3'")
    assert flodl_version(root) == "1.0.0"
    (root / ".venv/lib/python3.12/site-packages/flodl-1.1.0.dist-info").mkdir(parents=True)
    assert flodl_version(root) == "1.1.0"
    (root / "uv.lock").write_text('[[package]]\nname = "flodl"\nversion = "1.2.0"\n')
    assert flodl_version(root) == "1.2.0"


@pytest.mark.parametrize("requirement", ["flodl>=1", "flodl==1.*", "flodl"])
def test_a_range_alone_tells_no_version(tmp_path, requirement):
    with pytest.raises(UsageError, match="which flodl this project uses is not known"):
        flodl_version(project_of(tmp_path, requirement))


@pytest.mark.parametrize(
    ("requirement", "more"),
    [
        ("flodl @ git+https://host/x", ""),
        ("flodl", "[tool.uv.sources]\nflodl = { path = '../flodl' }\n"),
        ("flodl", "[tool.uv.sources]\nflodl = { git = 'https://host/x' }\n"),
    ],
)
def test_a_flodl_that_is_not_published_is_refused(tmp_path, requirement, more):
    with pytest.raises(UsageError, match="no published version"):
        flodl_version(project_of(tmp_path, requirement, more=more))


def test_no_project_no_flodl_and_a_broken_file_are_told_apart(tmp_path):
    with pytest.raises(UsageError, match="there is no"):
        flodl_version(tmp_path)
    with pytest.raises(UsageError, match="does not depend on flodl"):
        flodl_version(project_of(tmp_path, "flodl-hf==1", "flodlx"))
    (tmp_path / "pyproject.toml").write_text("[")
    with pytest.raises(UsageError, match="cannot be read"):
        flodl_version(tmp_path)


def test_names_are_compared_as_installers_do(tmp_path):
    root = project_of(tmp_path, "FLODL_hf[full]==1")
    assert depends_on(root, "flodl-hf")
    assert not depends_on(root, "flodl")


def test_a_dependency_is_added_and_comments_stay():
    text = "[project]\ndependencies = [\n    'a',  # first\n]\n"
    added = with_dependency(text, "flodl-hf[full]==1.0")
    assert tomllib.loads(added)["project"]["dependencies"] == ["a", "flodl-hf[full]==1.0"]
    assert "# first" in added
    with pytest.raises(FdlError, match="cannot be added to"):
        with_dependency("[project]\n", "x")
