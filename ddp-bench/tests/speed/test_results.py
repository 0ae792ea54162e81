import json

import pytest

from ddp_bench.errors import RunFolderError
from ddp_bench.speed.results import forget, load, save


def test_rounds_lie_in_a_file_for_each_arm_and_round(tmp_path, make_row):
    save(tmp_path, [make_row(), make_row(round=1), make_row(arm="flodl-graph")])
    files = sorted(path.name for path in (tmp_path / "rounds").iterdir())
    assert files == ["flodl-graph_r0.json", "torch-eager_r0.json", "torch-eager_r1.json"]


def test_what_is_saved_comes_back(tmp_path, make_row):
    rows = [make_row(), make_row(sync_policy="epoch", capture={"ok": True, "reason": None})]
    save(tmp_path, rows)
    assert sorted(load(tmp_path), key=lambda row: row.key) == sorted(rows, key=lambda row: row.key)


def test_models_of_other_sittings_stay(tmp_path, make_row):
    save(tmp_path, [make_row()])
    save(tmp_path, [make_row(name="convnet")])
    assert {row.name for row in load(tmp_path)} == {"mlp", "convnet"}


def test_rounds_of_two_sittings_never_mix(tmp_path, make_row):
    save(tmp_path, [make_row(round=0), make_row(round=1), make_row(name="convnet", round=1)])
    forget(tmp_path, ["mlp"])
    save(tmp_path, [make_row(round=0, median_epoch_ms=7.0)])
    found = [(row.name, row.round) for row in load(tmp_path)]
    assert sorted(found) == [("convnet", 1), ("mlp", 0)]


def test_file_of_another_form_is_named(tmp_path):
    path = tmp_path / "rounds" / "torch-eager_r0.json"
    path.parent.mkdir()
    path.write_text(json.dumps([{"name": "mlp", "speed": 3}]))
    with pytest.raises(RunFolderError, match=r"torch-eager_r0\.json: no results"):
        load(tmp_path)


def test_folder_that_cannot_be_made_is_named(tmp_path, make_row):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be written"):
        save(tmp_path / "file", [make_row()])
