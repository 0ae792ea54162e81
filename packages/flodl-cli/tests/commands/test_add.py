import py_compile
import tomllib

import pytest

from flodl_cli.commands import add
from flodl_cli.terminal import Terminal

MANIFEST = "# ours\ncommands:\n  test: {run: pytest}   # quick\n"


@pytest.fixture
def trained(project):
    project.write("pyproject.toml", "[project]\nname='x'\ndependencies=['flodl==1.5.0']\n")
    project.manifest(MANIFEST)
    return project


@pytest.fixture
def without_uv(monkeypatch):
    monkeypatch.setattr(add.shutil, "which", lambda name: None)


def test_playground_is_a_project_that_the_manifest_leads_to(trained):
    trained.write("fdl.yml.example", MANIFEST)
    result = trained.fdl("add", "flodl-hf", "--playground")
    assert result.code == 0, result.err
    folder = trained.root / "flodl-hf"
    data = tomllib.loads((folder / "pyproject.toml").read_text())
    assert data["project"]["dependencies"] == ["flodl-hf[full]==1.5.0"]
    for file in folder.glob("*.py"):
        py_compile.compile(str(file), cfile=str(trained.root / "x.pyc"), doraise=True)
    for name in ("fdl.yml", "fdl.yml.example"):
        text = (trained.root / name).read_text()
        assert text.startswith("# ours\ncommands:\n  test: {run: pytest}   # quick\n")
        assert "path: flodl-hf" in text
    assert trained.fdl("config", "check").code == 0
    assert "classify" in trained.fdl("flodl-hf").out
    assert trained.explained("flodl-hf", "classify", "--", "a/b") == "uv run python classify.py a/b"
    assert "docker" not in (folder / "fdl.yml").read_text()


def test_a_project_with_containers_gets_them_in_the_playground(trained):
    trained.write("compose.yaml", "services:\n  dev: {image: x}\n")
    assert trained.fdl("add", "hf", "--playground").code == 0
    assert "docker: dev" in (trained.root / "flodl-hf" / "fdl.yml").read_text()


def test_a_folder_of_that_name_stops_it_and_nothing_changes(trained):
    trained.write("flodl-hf/mine", "x")
    result = trained.fdl("add", "flodl-hf", "--playground", "--install")
    assert (result.code, "exists already; nothing was changed" in result.err) == (2, True)
    assert (trained.root / "fdl.yml").read_text() == MANIFEST
    assert "flodl-hf" not in (trained.root / "pyproject.toml").read_text()


def test_a_broken_manifest_stops_it_and_nothing_changes(trained):
    trained.manifest("commands: [\n")
    assert trained.fdl("add", "hf", "--playground").code == 2
    assert not (trained.root / "flodl-hf").exists()


def test_install_pins_by_uv(trained, fake_program):
    fake_program("uv", f'echo "$@" "in $PWD" > {trained.root}/calls')
    result = trained.fdl("add", "hf", "--install")
    assert result.out == "added flodl-hf[full]==1.5.0\n", result.err
    assert (trained.root / "calls").read_text() == f"add flodl-hf[full]==1.5.0 in {trained.root}\n"


@pytest.mark.usefixtures("without_uv")
def test_install_without_uv_edits_the_file_once(trained):
    result = trained.fdl("add", "hf", "--install")
    assert (result.code, "uv is not on PATH" in result.err) == (0, True)
    assert "depends on flodl-hf already" in trained.fdl("add", "hf", "--install").out
    data = tomllib.loads((trained.root / "pyproject.toml").read_text())
    assert data["project"]["dependencies"] == ["flodl==1.5.0", "flodl-hf[full]==1.5.0"]


def test_what_uv_says_reaches_the_user(trained, fake_program):
    fake_program("uv", "echo no such package >&2; exit 1")
    result = trained.fdl("add", "hf", "--install")
    assert (result.code, "failed: no such package" in result.err) == (1, True)


@pytest.mark.usefixtures("without_uv")
def test_on_a_terminal_the_user_is_asked(trained, monkeypatch):
    monkeypatch.setattr(Terminal, "is_interactive", property(lambda self: True))
    answers = iter(["cancel", "neither", "install"])
    monkeypatch.setattr(Terminal, "ask", lambda self, question: next(answers))
    assert [trained.fdl("add", "hf").code for _ in range(3)] == [130, 2, 0]
    (trained.root / "pyproject.toml").unlink()
    assert "no pyproject.toml" in trained.fdl("add", "hf").err, "asked before it can be done"


def test_misuse(trained):
    assert trained.fdl("add", "hf").code == 2, "nobody can be asked"
    assert "'torch' cannot be added" in trained.fdl("add", "torch", "--install").err
    (trained.root / "fdl.yml").unlink()
    assert "has no fdl.yml" in trained.fdl("add", "hf", "--install").err
    (trained.root / "pyproject.toml").unlink()
    assert "no pyproject.toml" in trained.fdl("add", "hf", "--install").err
