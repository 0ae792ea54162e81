import json
import os

import pytest

from flodl_cli.config import project as project_module
from flodl_cli.config import resolve as resolve_module
from flodl_cli.config.project import open_project
from flodl_cli.config.resolve import resolve
from flodl_cli.config.tree_cache import load_tree, store_tree

MANIFEST = """\
description: Everything
entry: python -m x
docker: dev
training: {epochs: 3}
env: {A: '1'}
commands:
  t: {run: pytest, append: -q, env: {B: '2'}}
  p: {options: {model: mlp}, args: [a]}
  c: {path: c}
"""


@pytest.fixture
def reads(monkeypatch):
    """How often the manifests were really read."""
    seen = []

    def counting(file, *rest):
        seen.append(file)
        return resolve(file, *rest)

    monkeypatch.setattr(resolve_module, "resolve", counting)
    return seen


@pytest.fixture
def small(project):
    project.manifest(MANIFEST)
    project.write("c/fdl.yml", "commands: {d: {run: 'true'}}\n")
    return project


def opened(project):
    return open_project(str(project.root))


def test_kept_tree_equals_the_one_that_was_built(small, cache_file):
    resolution = resolve(str(small.root / "fdl.yml"))
    store_tree(resolution.level, None, resolution.files, resolution.absent, "1")
    assert cache_file.exists()
    assert load_tree(str(small.root / "fdl.yml"), None, "1") == resolution.level


def test_every_overlay_has_its_own_tree(small, reads):
    small.write("fdl.ci.yml", "description: CI\n")
    for overlay, expected in ((None, "Everything"), ("ci", "CI")) * 2:
        assert open_project(str(small.root), overlay).description == expected
    assert len(reads) == 2
    small.write("c/fdl.ci.yml", "description: below\n")
    level = open_project(str(small.root), "ci").commands["c"].level
    assert level.description == "below"


def test_settings_of_the_environment_go_past_the_cache(small, reads):
    opened(small)
    level = open_project(str(small.root), None, {"FDL_TRAINING__EPOCHS": "9"})
    assert level.program.settings["training.epochs"] == "9"
    assert opened(small).program.settings["training.epochs"] == "3"
    assert len(reads) == 2


def test_second_call_does_not_read_the_manifests(small, reads):
    assert opened(small) == opened(small)
    assert len(reads) == 1


def test_cache_folder_hides_itself_from_git(small):
    opened(small)
    assert (small.root / ".fdl/.gitignore").read_text() == "*\n"
    assert [each.name for each in (small.root / ".fdl/cache").iterdir()] == ["tree.json"]


@pytest.mark.parametrize("name", ["fdl.yml", "c/fdl.yml"])
def test_edit_of_any_layer_is_seen(small, reads, name):
    opened(small)
    file = small.root / name
    file.write_text(file.read_text() + "# edit\n")
    opened(small)
    assert len(reads) == 2


def test_edit_of_equal_size_and_time_is_seen(small, reads):
    opened(small)
    file = small.root / "fdl.yml"
    before = file.stat()
    file.write_text(file.read_text().replace("pytest", "qytest"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert opened(small).commands["t"].run == "qytest"


def test_touch_is_seen(small, reads):
    opened(small)
    os.utime(small.root / "fdl.yml", ns=(1, 1))
    opened(small)
    assert len(reads) == 2


def test_second_manifest_that_appears_below_is_seen(small):
    opened(small)
    small.write("c/fdl.json", "{}")
    assert opened(small).commands["c"].problems


def test_other_version_of_fdl_reads_anew(small, reads, monkeypatch):
    opened(small)
    monkeypatch.setattr(project_module, "__version__", "9.9.9")
    opened(small)
    assert len(reads) == 2


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"format": 1}', '{"format": 2}', "\udcff"]
)
def test_damaged_cache_only_costs_time(small, reads, cache_file, content):
    expected = opened(small)
    cache_file.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert opened(small) == expected
    assert len(reads) == 2


def test_cache_with_a_tree_of_another_shape_is_not_used(small, cache_file):
    expected = opened(small)
    kept = json.loads(cache_file.read_text())
    del kept["tree"]["commands"]["t"]["run"]
    cache_file.write_text(json.dumps(kept))
    assert opened(small) == expected


def test_folder_that_cannot_hold_a_cache_only_costs_time(small):
    (small.root / ".fdl").write_text("a file in the way")
    assert opened(small) == opened(small)
    assert (small.root / ".fdl").read_text() == "a file in the way"


def test_tree_with_problems_is_not_kept(small, cache_file):
    small.write("c/fdl.yml", "nonsense: 1\n")
    opened(small)
    assert not cache_file.exists()


def test_copied_project_does_not_use_the_cache_of_the_original(small, tmp_path, reads):
    import shutil

    opened(small)
    copy = tmp_path / "copy"
    shutil.copytree(small.root, copy, ignore=shutil.ignore_patterns("copy"))
    level = open_project(str(copy))
    assert level.directory == str(copy)
    assert level.commands["t"].directory == str(copy)
