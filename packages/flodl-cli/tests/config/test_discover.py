import pytest

from flodl_cli.config.discover import find_manifest, manifest_in
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
