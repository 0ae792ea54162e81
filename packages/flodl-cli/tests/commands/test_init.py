import tomllib

import pytest

from flodl_cli.terminal import Terminal


def test_project_is_made_and_the_next_steps_are_told(project):
    result = project.fdl("init", "my-proj", "--native", "--no-git")
    assert result.code == 0
    assert result.out.startswith(f"made {project.root}/my-proj (native):\n  pyproject.toml\n")
    assert result.out.endswith("next:\n  cd my-proj\n  uv sync\n  ./fdl test\n  ./fdl run\n")
    assert not (project.root / "my-proj" / ".git").exists()


def test_without_a_flag_and_a_terminal_it_is_the_mounted_form(project):
    assert "(mounted)" in project.fdl("init", "a", "--no-git").out
    assert "(docker)" in project.fdl("init", "b", "--docker", "--no-git").out


@pytest.mark.parametrize(("answer", "form"), [("", "mounted"), ("Native", "native")])
def test_on_a_terminal_the_user_is_asked(project, monkeypatch, answer, form):
    monkeypatch.setattr(Terminal, "ask", lambda self, question: answer)
    assert f"({form})" in project.fdl("init", "a", "--no-git").out


def test_git_and_backend(project, fake_program):
    fake_program("git", f'echo "$@" > {project.root}/calls')
    assert project.fdl("init", "a", "--native", "--backend", "cpu").code == 0
    assert (project.root / "calls").read_text() == f"init --quiet {project.root}/a\n"
    data = tomllib.loads((project.root / "a" / "pyproject.toml").read_text())
    assert data["tool"]["uv"]["sources"]["torch"] == {"index": "pytorch-cpu"}


@pytest.mark.parametrize(
    "words", [("a", "--docker", "--native"), ("1a",), ("a", "--backend", "cu1"), ()]
)
def test_misuse_makes_nothing(project, words):
    assert project.fdl("init", *words).code == 2
    assert [*project.root.iterdir()] == []
