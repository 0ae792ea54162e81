import pytest

from flodl_cli.config.discover import overlay_names
from flodl_cli.config.overlay import has_overlay, require_overlay
from flodl_cli.errors import OverlayError


def test_overlay_beside_a_manifest_further_up_counts(project):
    project.manifest("commands: {a: null}\n")
    project.write("fdl.ci.yml", "")
    project.write("a/fdl.yml", "entry: x\n")
    require_overlay(str(project.root / "a"), "ci", "@")
    assert has_overlay(str(project.root / "a"), "ci")
    with pytest.raises(OverlayError) as failed:
        require_overlay(str(project.root / "a"), "cj", "@")
    assert failed.value.message.count("fdl.cj.yml") == 2
    assert failed.value.hint == "did you mean ci?"


def test_names_are_those_of_files_only(project):
    project.manifest("")
    for name in ("fdl.ci.yml", "fdl.b.json", "fdl.c.txt", "other.d.yml", "fdl.yml.example"):
        project.write(name, "")
    assert overlay_names(str(project.root / "fdl.yml")) == ["b", "ci"]


@pytest.mark.parametrize("name", ["../ci", "/etc/passwd", "a/b"])
def test_word_with_a_path_in_it_is_no_overlay(project, name):
    project.manifest("")
    assert not has_overlay(str(project.root), name)


def test_child_overlay_is_optional(project):
    project.manifest("commands: {a: null, b: null}\n")
    project.write("fdl.ci.yml", "env: {X: ci}\n")
    project.write("a/fdl.yml", "entry: a\n")
    project.write("a/fdl.ci.yml", "training: {epochs: 1}\n")
    project.write("b/fdl.yml", "entry: b\n")
    assert project.explained("@ci", "a") == "a --epochs 1"
    assert project.explained("@ci", "b") == "b"
    assert project.explained("a") == "a"


def test_block_of_the_parent_beats_the_overlay_of_the_child(project):
    project.manifest("commands: {a: {training: {epochs: 9}}}\n")
    project.write("fdl.ci.yml", "")
    project.write("a/fdl.yml", "entry: a\ntraining: {epochs: 1, seed: 1}\n")
    project.write("a/fdl.ci.yml", "training: {epochs: 2, seed: 2}\n")
    assert project.explained("@ci", "a") == "a --epochs 9 --seed 2"
