from pathlib import Path

import pytest
import torch

from ddp_bench.data.source import DataSource
from ddp_bench.errors import RunFolderError, UsageError
from ddp_bench.matrix import Request, Sweep, plan_cells
from ddp_bench.registry import BUILT_IN

MODELS = {definition.name: definition for definition in BUILT_IN}


def test_request_without_anything_plans_every_model_at_its_mini_set_up():
    plans = plan_cells(Request(device="cpu"), MODELS)
    assert [plan.name for plan in plans] == [f"{name}/solo-0" for name in MODELS]
    assert [plan.epochs for plan in plans] == [6, 6, 3, 5, 2]
    assert [plan.setup.batch_size for plan in plans] == [64, 64, 64, 64, 16]
    assert [plan.floor for plan in plans] == [0.86, 0.90, 0.94, 0.008, 2.2]
    assert str(plans[0].folder.path) == "runs/mini/logistic/solo-0"


def test_real_data_has_the_published_set_up_and_a_folder_of_its_own():
    plan = plan_cells(Request(device="cpu", models="char-rnn", source="real"), MODELS)[0]
    assert (plan.epochs, plan.setup.batch_size, plan.setup.data.seq_len) == (50, 64, 128)
    assert plan.floor is None
    assert plan.folder.path == Path("runs/char-rnn/solo-0")


def test_output_replaces_the_default_folder():
    plan = plan_cells(Request(device="cpu", models="mlp", output=Path("elsewhere")), MODELS)[0]
    assert plan.folder.path == Path("elsewhere/mlp/solo-0")


def test_longer_run_is_planned_with_the_scaled_rate():
    plan = plan_cells(Request(device="cpu", models="mlp", epochs=12), MODELS)[0]
    assert plan.rate.value == pytest.approx(5e-4)
    assert plan.floor is None


def test_gpu_that_is_not_there_is_misuse(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="torch sees no CUDA device"):
        plan_cells(Request(device="cuda"), MODELS)


def test_every_gpu_is_a_solo_mode(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    plans = plan_cells(Request(models="mlp"), MODELS)
    assert [(plan.mode.name, str(plan.device)) for plan in plans] == [
        ("solo-0", "cuda:0"),
        ("solo-1", "cuda:1"),
    ]


def test_all_folders_are_checked_before_any_data_is_loaded(tmp_path):
    (tmp_path / "mlp").write_text("a file where a folder should be")
    plans = plan_cells(Request(device="cpu", models="logistic,mlp", output=tmp_path), MODELS)
    with pytest.raises(RunFolderError, match="mlp/solo-0: it cannot be written"):
        Sweep.prepare(plans, DataSource("mini"))


def test_models_on_the_same_data_share_it(tmp_path):
    plans = plan_cells(Request(device="cpu", models="logistic,mlp", output=tmp_path), MODELS)
    (_, first), (_, second) = Sweep.prepare(plans, DataSource("mini")).cells
    assert first is second


def test_data_folder_without_real_data_is_misuse():
    with pytest.raises(UsageError, match="--data-dir here: the mini data lies inside flodl"):
        plan_cells(Request(device="cpu", data_dir=Path("here")), MODELS)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_scale_that_cannot_train_is_misuse(scale):
    with pytest.raises(UsageError, match="must be a finite number above 0"):
        plan_cells(Request(device="cpu", lr_scale=scale), MODELS)
