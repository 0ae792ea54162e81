import sys

import pytest


@pytest.fixture
def plugin(project):
    script = project.write(".venv/bin/flodl-hf", '#!/bin/sh\necho "$FDL_PROJECT_ROOT|$@"\nexit 4\n')
    script.chmod(0o755)
    points = ".venv/lib/python3.12/site-packages/flodl_hf-1.0.dist-info/entry_points.txt"
    project.write(
        points, "[console_scripts]\nx = y:z\n[fdl.plugins]\nflodl-hf = flodl_hf.cli:main\n"
    )
    project.manifest("commands: {t: {run: echo t}}\n")
    return project


def test_plugin_gets_every_word_after_its_name(plugin):
    result = plugin.fdl("flodl-hf", "classify", "--", "a b", "--flag")
    assert (result.code, result.out) == (4, f"{plugin.root}|classify -- a b --flag\n")
    assert plugin.fdl("flodl-hf", "--help").out.endswith("|--help\n")
    assert "flodl-hf classify" in plugin.explained("flodl-hf", "classify")


def test_plugin_beside_fdl_itself_works_when_nothing_is_activated(plugin, monkeypatch, tmp_path):
    (plugin.root / "fdl.yml").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setattr(sys, "prefix", str(plugin.root / ".venv"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert plugin.fdl("flodl-hf").code == 4


def test_script_that_no_package_offers_is_no_plugin(plugin):
    (plugin.root / ".venv/bin/other").write_text("#!/bin/sh\n")
    assert "unknown command 'other'" in plugin.fdl("other").err


def test_command_of_the_manifest_wins(plugin):
    plugin.manifest("commands: {flodl-hf: {run: echo mine}}\n")
    assert plugin.fdl("flodl-hf").out == "mine\n"


def test_plugin_of_the_active_environment_works_without_a_project(plugin, monkeypatch, tmp_path):
    (plugin.root / "fdl.yml").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("VIRTUAL_ENV", str(plugin.root / ".venv"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert plugin.fdl("flodl-hf").code == 4
