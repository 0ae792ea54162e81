from flodl_cli.libtorch.catalog import load_catalog
from flodl_cli.libtorch.versions import tch_above, wanted_version

LOCK = '[[package]]\nname = "{}"\nversion = "{}"\n'


def test_default_is_the_catalogs(tmp_path, platform):
    wanted = wanted_version(tmp_path, load_catalog(platform))
    assert (wanted.version, wanted.source) == ("2.13.0", "the catalog's default")


def test_locked_torch_wins(tmp_path, platform):
    (tmp_path / "uv.lock").write_text(LOCK.format("torch", "2.11.0+cu128"))
    (tmp_path / "Cargo.lock").write_text(LOCK.format("torch-sys", "0.26.0"))
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    wanted = wanted_version(below, load_catalog(platform))
    assert (wanted.version, wanted.source) == ("2.11.0", str(tmp_path / "uv.lock"))


def test_torch_that_tch_insists_on(tmp_path, platform):
    (tmp_path / "Cargo.lock").write_text(LOCK.format("torch-sys", "0.24.0"))
    wanted = wanted_version(tmp_path, load_catalog(platform))
    assert wanted.version == "2.11.0"
    assert wanted.source.endswith("Cargo.lock (torch-sys 0.24.0)")
    assert tch_above(tmp_path / "x") == "0.24.0"


def test_unreadable_lock_asks_for_nothing(tmp_path, platform):
    (tmp_path / "uv.lock").write_text("[[package")
    assert wanted_version(tmp_path, load_catalog(platform)).version == "2.13.0"
    assert tch_above(tmp_path) is None
