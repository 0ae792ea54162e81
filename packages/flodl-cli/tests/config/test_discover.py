import os

import pytest

from flodl_cli.config.discover import find_manifest, manifest_in, overlay_names, overlay_of
from flodl_cli.errors import ConfigError


@pytest.mark.parametrize("name", ["fdl.yml", "fdl.yaml", "fdl.json"])
def test_nearest_manifest_upwards_is_found(tmp_path, name):
    (tmp_path / "fdl.yml").touch()
    inner = tmp_path / "a/b/c"
    inner.mkdir(parents=True)
    (tmp_path / "a" / name).touch()
    assert find_manifest(str(inner)) == str(tmp_path / "a" / name)
    assert find_manifest(str(tmp_path)) == str(tmp_path / "fdl.yml")


def test_two_manifests_in_one_directory_are_an_error(tmp_path):
    (tmp_path / "fdl.yml").touch()
    (tmp_path / "fdl.json").touch()
    with pytest.raises(ConfigError, match=r"fdl\.yml and fdl\.json stand in one directory"):
        manifest_in(str(tmp_path))


def test_directory_of_that_name_is_no_manifest(tmp_path):
    (tmp_path / "fdl.yml").mkdir()
    assert manifest_in(str(tmp_path)) is None


def test_link_that_leads_nowhere_is_said(tmp_path):
    (tmp_path / "fdl.yml").symlink_to("gone.yml")
    (tmp_path / "fdl.ci.yml").symlink_to("fdl.ci.yml")
    with pytest.raises(ConfigError, match="a link to none") as caught:
        manifest_in(str(tmp_path))
    assert caught.value.file == str(tmp_path / "fdl.yml")
    with pytest.raises(ConfigError, match="a link to none"):
        overlay_of(str(tmp_path / "fdl.yml"), "ci")


def test_schema_for_editors_is_no_overlay(tmp_path):
    for name in ("fdl.yml", "fdl.schema.json", "fdl.ci.json"):
        (tmp_path / name).touch()
    manifest = str(tmp_path / "fdl.yml")
    assert overlay_names(manifest) == ["ci"]
    assert overlay_of(manifest, "schema") is None
    (tmp_path / "fdl.schema.yml").touch()
    assert overlay_names(manifest) == ["ci", "schema"]
    assert overlay_of(manifest, "schema") == str(tmp_path / "fdl.schema.yml")


def test_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fdl.yml")
    with pytest.raises(ConfigError, match="is no file"):
        manifest_in(str(tmp_path))
