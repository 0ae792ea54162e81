import pytest

from flodl_cli.terminal import Terminal


@pytest.fixture(params=["fdl.yml.example", "fdl.yaml.dist"])
def template(request, project):
    return project.write(request.param, "commands: {t: {run: echo hi}}\n")


def test_template_is_used_in_place_with_a_note(project, template):
    result = project.fdl("t")
    assert (result.code, result.out) == (0, "hi\n")
    target = template.name.rpartition(".")[0]
    assert result.err == f"note: using {template.name}; copy it to {target} to change it\n"
    assert project.fdl("config", "check").out == f"{template.name}: ok\n"


@pytest.mark.parametrize(("answer", "copied"), [("", True), ("y", True), ("n", False)])
def test_template_is_copied_when_the_user_agrees(project, template, monkeypatch, answer, copied):
    monkeypatch.setattr(Terminal, "is_interactive", True)
    monkeypatch.setattr(Terminal, "ask", lambda self, question: answer)
    assert project.fdl("t").out == "hi\n"
    target = template.with_name(template.name.rpartition(".")[0])
    assert target.exists() is copied


def test_real_manifest_wins(project, template):
    project.manifest("commands: {t: {run: echo real}}\n")
    assert project.fdl("t") == (0, "real\n", "")
