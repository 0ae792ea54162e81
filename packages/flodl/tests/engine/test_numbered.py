import os

import pytest

from flodl.core.errors import CheckpointError
from flodl.engine.bundle import find_bundle, write_bundle
from flodl.engine.numbered import base_of, keep_last, numbered_stem, numbered_stems


def bundle(folder, name, age):
    """A checkpoint that was written ``age`` seconds ago."""
    write_bundle(folder / name, {".fdl": lambda file: file.write_text(name)}, {"name": name})
    at = 1_000_000_000 - age
    os.utime(folder / f"{name}.meta.json", (at, at))


def stems(folder):
    return sorted(file.name.removesuffix(".meta.json") for file in folder.glob("*.meta.json"))


def test_names_have_the_kind_and_the_number(tmp_path):
    assert numbered_stem("a/run", "epoch", 3) == "a/run-epoch3"
    assert base_of(tmp_path / "run-window12") == tmp_path / "run"
    assert base_of(tmp_path / "run") is None


def test_the_newest_stay_whatever_their_numbers(tmp_path):
    for age, name in enumerate(["run-window9", "run-epoch10", "run-epoch2", "run-window1"]):
        bundle(tmp_path, name, age)
    bundle(tmp_path, "run", 100)
    bundle(tmp_path, "running-epoch1", 100)
    assert [stem.name for stem in numbered_stems(tmp_path / "run")] == [
        "run-window1", "run-epoch2", "run-epoch10", "run-window9"
    ]  # fmt: skip
    keep_last(tmp_path / "run", 2, spare=tmp_path / "run-window1")
    assert stems(tmp_path) == ["run", "run-epoch10", "run-window1", "run-window9", "running-epoch1"]
    keep_last(tmp_path / "run", None)
    assert len(stems(tmp_path)) == 5


def test_of_the_same_moment_the_higher_number_is_the_newer(tmp_path):
    for number in (9, 10, 11):
        bundle(tmp_path, f"run-window{number}", 0)
    keep_last(tmp_path / "run", 1)
    assert stems(tmp_path) == ["run-window11"]


def test_a_stem_of_its_own_goes_before_its_numbered_ones(tmp_path):
    bundle(tmp_path, "run-epoch1", 5)
    bundle(tmp_path, "run-epoch2", 1)
    assert find_bundle(tmp_path / "run").meta["name"] == "run-epoch2"
    (tmp_path / "run-epoch2.fdl").write_text("torn")
    assert find_bundle(tmp_path / "run").meta["name"] == "run-epoch1"
    bundle(tmp_path, "run", 100)
    assert find_bundle(tmp_path / "run").meta["name"] == "run"
    assert find_bundle(tmp_path / "run-epoch1.meta.json").meta["name"] == "run-epoch1"
    with pytest.raises(CheckpointError, match="there is no other"):
        find_bundle(tmp_path / "other")
