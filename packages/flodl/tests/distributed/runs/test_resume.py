"""Checkpoints in the middle of an epoch, and runs of another size that go on from them."""

import pytest
import torch
import torch._dynamo
from torch import nn

from flodl.data import TensorDataSet
from flodl.distributed.averaging.outer import DiLoCo
from flodl.distributed.config import ElCheConfig
from flodl.engine.bundle import find_bundle
from flodl.testing.sim import run_threads

SAMPLES = 120


class Counter(nn.Module):
    """One number a sample: its gradient is 1 for each time that the sample is in a batch."""

    def __init__(self):
        super().__init__()
        self.seen = nn.Parameter(torch.zeros(SAMPLES))

    def forward(self, index):
        return -self.seen[index]


def run(ranks, folder, *, options=None, **settings):
    return run_threads(
        ranks,
        lambda device: Counter(),
        lambda parameters: torch.optim.SGD(parameters, lr=1.0, momentum=0.0),
        lambda model, batch: model(batch["index"]).sum(),
        TensorDataSet(index=torch.arange(SAMPLES)),
        batch_size=4,
        num_epochs=2,
        elche=ElCheConfig.cpu_cadence(anchor=3, max_anchor=3, gamma=0.0),
        save_path=folder / "model",
        delay_ms=[4.0] * ranks,
        options={"checkpoint_keep": None} | (options or {}),
        **settings,
    )


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_run_goes_on_in_the_middle_of_an_epoch_with_any_number_of_ranks(tmp_path, ranks):
    run(2, tmp_path, checkpoint_every_windows=2)
    bundle = find_bundle(tmp_path / "model-window2")
    (account,) = bundle.meta["ledger"]
    assert 0 < account["committed"] < SAMPLES
    done = {i for start, stop in account["committed_ranges"] for i in range(start, stop)}
    assert len(done) == account["committed"]

    again = run(ranks, tmp_path, resume_from=tmp_path / "model-window2")
    assert again.finish.reason == "done"
    assert [a["committed"] for a in again.accounting] == [SAMPLES, SAMPLES]
    assert [m.samples_processed for m in again.metrics] == [SAMPLES - len(done), SAMPLES]
    seen = again.state["seen"]
    # each epoch adds one share: 1/2 before the checkpoint, 1/ranks or less often 1/2, 1 after it
    assert float(seen.min()) > 0
    assert float(seen.max()) <= 2


def test_the_outer_optimizer_goes_on_with_its_momentum(tmp_path):
    options = {"outer": DiLoCo(lr=0.5, momentum=0.9)}
    run(2, tmp_path, options=options, checkpoint_every=1)
    stem = tmp_path / "model-epoch0"
    assert {*find_bundle(stem).meta["parts"]} == {".fdl", ".optim", ".outer.fdl"}
    again = run(2, tmp_path, options=options, resume_from=stem)
    assert again.finish.reason == "done"
    assert [a["epoch"] for a in again.accounting] == [1]


def test_a_checkpoint_of_other_data_is_refused_before_anything_is_trained(tmp_path):
    run(2, tmp_path, checkpoint_every_windows=2)
    with pytest.raises(ValueError, match="in the middle of an epoch of 120 samples"):
        run_threads(
            2,
            lambda device: Counter(),
            lambda parameters: torch.optim.SGD(parameters, lr=1.0),
            lambda model, batch: model(batch["index"]).sum(),
            TensorDataSet(index=torch.arange(60)),
            batch_size=4,
            num_epochs=2,
            elche=ElCheConfig.cpu_cadence(),
            resume_from=tmp_path / "model-window2",
        )


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("mode", ["full", "exact"])
def test_rates_go_on_as_they_were_and_are_not_scaled_twice(tmp_path, mode, scheduled):
    options = {}
    if scheduled:
        options["scheduler"] = lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(
            optimizer, 0.9
        )
    settings = {"lr_scale_ratio": 1.0, "checkpoint_mode": mode, "options": options}
    whole = run(2, tmp_path, checkpoint_every=1, **settings)
    again = run(2, tmp_path, resume_from=tmp_path / "model-epoch0", **settings)
    assert again.finish.reason == "done"
    assert [metrics.epoch for metrics in again.metrics] == [1]
    if not scheduled:
        assert [metrics.lr for metrics in whole.metrics] == [2.0, 2.0]
        assert again.metrics[0].lr == 2.0
    elif mode == "exact":
        assert again.metrics[0].lr < 2 * 0.9**10
