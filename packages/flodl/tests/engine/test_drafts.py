import json

import pytest

from flodl.core.errors import CheckpointError
from flodl.engine.bundle import find_bundle, write_bundle
from flodl.engine.drafts import Draft, discard_drafts, remove_bundle


def text(content):
    return lambda file: file.write_text(content)


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_parts_take_their_places_only_when_they_are_sealed(tmp_path):
    stem = tmp_path / "run-epoch3"
    draft, other = Draft(stem, "7-1"), Draft(stem, "7-1")
    listed = {".fdl": draft.write(".fdl", text("model"))}
    listed[".rank1.fdl"] = other.write(".rank1.fdl", text("own"))
    assert names(tmp_path) == ["run-epoch3.fdl.tmp-7-1", "run-epoch3.rank1.fdl.tmp-7-1"]
    draft.seal(listed, {"epoch": 4})
    bundle = find_bundle(stem)
    assert bundle.meta["epoch"] == 4
    assert bundle.part(".rank1.fdl").read_text() == "own"
    assert names(tmp_path) == ["run-epoch3.fdl", "run-epoch3.meta.json", "run-epoch3.rank1.fdl"]


def test_a_seal_without_all_parts_makes_no_checkpoint(tmp_path):
    draft = Draft(tmp_path / "run", "7-1")
    listed = {".fdl": draft.write(".fdl", text("model"))}
    with pytest.raises(CheckpointError, match="No such file"):
        draft.seal({**listed, ".optim": listed[".fdl"]}, {})
    with pytest.raises(CheckpointError, match=r"there is no run\.meta\.json"):
        find_bundle(tmp_path / "run")


def test_what_killed_processes_have_left_is_removed_and_nothing_else(tmp_path):
    stays = [
        "run.fdl", "run.meta.json", "run.optim", "run-epoch1.fdl.tmp-1-1", "run.data.tmp-1-1",
        "running.fdl.tmp-1-1", ".run2.fdl.tmp-1-1.aa.tmp",
    ]  # fmt: skip
    goes = [
        "run.fdl.tmp-ab12", "run.rank11.optim.tmp-7-1", "run.schedule.optim.tmp-7-2",
        ".run.outer.fdl.tmp-7-1.0a1b2c.tmp",
    ]  # fmt: skip
    for name in (*stays, *goes):
        (tmp_path / name).touch()
    discard_drafts(tmp_path / "run")
    assert names(tmp_path) == sorted(stays)


def test_an_attempt_takes_only_its_own_files_away(tmp_path):
    first, second = Draft(tmp_path / "run", "1-1"), Draft(tmp_path / "run", "1-2")
    first.write(".fdl", text("a"))
    second.write(".fdl", text("b"))
    first.discard()
    assert names(tmp_path) == ["run.fdl.tmp-1-2"]


def test_a_checkpoint_is_removed_with_all_its_parts(tmp_path):
    for stem in ("run-epoch1", "run-epoch11"):
        write_bundle(tmp_path / stem, {".fdl": text("m"), ".rank0.optim": text("o")}, {})
    remove_bundle(tmp_path / "run-epoch1")
    assert names(tmp_path) == [
        "run-epoch11.fdl", "run-epoch11.meta.json", "run-epoch11.rank0.optim"
    ]  # fmt: skip


def test_what_is_listed_is_what_was_written(tmp_path):
    listed = write_bundle(tmp_path / "run", {".fdl": text("model")}, {"seed": 1})
    meta = json.loads((tmp_path / "run.meta.json").read_text())
    assert meta["parts"] == listed
    assert listed[".fdl"]["bytes"] == 5
