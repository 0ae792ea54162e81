import pytest
import torch
from torch import nn

from flodl.checkpoint import checkpoint_info, load_checkpoint, migrate_checkpoint, save_checkpoint
from flodl.core.errors import CheckpointError, CheckpointKeyError, CheckpointShapeError


def numbered(*shapes, **named):
    return {name: torch.full(shape, float(i)) for i, (name, shape) in enumerate(named.items())}


OLD = numbered(same=(2,), moved=(3,), gone=(4,), twin_a=(5,), twin_b=(5,))
NEW = numbered(same=(2,), renamed=(3,), added=(6,), twin_x=(5,), twin_y=(5,))


@pytest.fixture
def files(tmp_path):
    save_checkpoint(tmp_path / "old.fdl", OLD, hash="a" * 64)
    return tmp_path / "old.fdl", tmp_path / "new.fdl"


def test_names_are_matched_by_name_then_by_shape(files):
    report = migrate_checkpoint(*files, NEW)
    assert report.unchanged == ("same",)
    assert report.remapped == (("moved", "renamed"),)
    assert report.dropped == ("gone",)
    assert report.missing == ("added",)
    assert report.ambiguous == ((("twin_a", "twin_b"), ("twin_x", "twin_y")),)
    assert not report.is_complete
    assert "moved -> renamed" in str(report)
    assert "ambiguous: twin_a, twin_b -> twin_x, twin_y: decide with rules=" in str(report)
    info = checkpoint_info(files[1])
    assert (info.version, info.hash) == (3, "")
    target = {name: torch.zeros_like(value) for name, value in NEW.items()}
    assert load_checkpoint(files[1], target).loaded == ("renamed", "same")
    assert torch.equal(target["renamed"], OLD["moved"])


def test_rules_decide_first(files):
    wanted = {name: value for name, value in NEW.items() if name != "added"}
    report = migrate_checkpoint(*files, wanted, rules={r"twin_a": "twin_y", r"twin_(b)": "twin_x"})
    assert report.is_complete
    assert dict(report.remapped)["twin_a"] == "twin_y"
    target = {name: torch.zeros_like(value) for name, value in wanted.items()}
    load_checkpoint(files[1], target, strict=True)
    assert torch.equal(target["twin_y"], OLD["twin_a"])


def test_rules_may_use_groups(tmp_path):
    save_checkpoint(tmp_path / "a.fdl", {f"layer{i}.w": torch.full((2,), i) for i in range(3)})
    wanted = {f"blocks.{i}.weight": torch.zeros(2) for i in range(3)}
    report = migrate_checkpoint(
        tmp_path / "a.fdl",
        tmp_path / "a.fdl",
        wanted,
        rules={r"layer(\d+)\.w": r"blocks.\1.weight"},
    )
    assert report.is_complete
    load_checkpoint(tmp_path / "a.fdl", wanted, strict=True)
    assert wanted["blocks.2.weight"].tolist() == [2.0, 2.0]


def test_rules_that_lead_nowhere_are_refused_and_nothing_is_written(files):
    with pytest.raises(
        CheckpointKeyError, match="'gone' becomes 'x', which is no name of the model"
    ):
        migrate_checkpoint(*files, NEW, rules={"gone": "x"})
    with pytest.raises(
        CheckpointKeyError, match="'twin_b' becomes 'twin_x', which was given before"
    ):
        migrate_checkpoint(*files, NEW, rules={"twin_.": "twin_x"})
    with pytest.raises(
        CheckpointShapeError, match=r"'gone' of shape \[4\] becomes 'added' of shape"
    ):
        migrate_checkpoint(*files, NEW, rules={"gone": "added"})
    assert not files[1].exists()


def test_tied_tensors_stay_tied(tmp_path):
    shared = torch.ones(3)
    save_checkpoint(tmp_path / "a.fdl", {"a": shared, "b": shared})
    report = migrate_checkpoint(tmp_path / "a.fdl", tmp_path / "b.fdl", {"a": shared, "b": shared})
    assert report.unchanged == ("a", "b")
    assert checkpoint_info(tmp_path / "b.fdl").aliases == {"b": "a"}


def test_module_is_a_target_and_missing_files_are_named(tmp_path):
    save_checkpoint(tmp_path / "a.fdl", nn.Linear(2, 2))
    report = migrate_checkpoint(
        tmp_path / "a.fdl", tmp_path / "b.fdl", nn.Sequential(nn.Linear(2, 2))
    )
    assert report.remapped == (("bias", "0.bias"), ("weight", "0.weight"))
    with pytest.raises(CheckpointError, match="cannot read checkpoint"):
        migrate_checkpoint(tmp_path / "none.fdl", tmp_path / "b.fdl", {})
