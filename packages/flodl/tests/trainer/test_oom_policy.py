"""A run on one device whose memory runs out."""

import logging

import pytest
import torch
from torch import nn

from flodl import TensorDataSet, Trainer
from flodl.core.errors import ConfigError


def run_of(room, policy=None):
    def step(model, batch):
        if batch.size > room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return (model(batch["x"]) - batch["y"]).square().mean()

    points = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    builder = (
        Trainer.builder(
            lambda device: nn.Linear(4, 1).to(device),
            lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            step,
        )
        .dataset(TensorDataSet(x=points, y=points.sum(1, keepdim=True)))
        .batch_size(8)
        .num_epochs(3)
        .devices(["cpu"])
    )
    if policy is not None:
        builder.oom_policy(policy)
    return builder.run()


def test_by_default_batches_are_taken_in_parts_with_the_same_result(caplog):
    whole = run_of(room=8).join()
    with caplog.at_level(logging.WARNING):
        parts = run_of(room=2).join()
    for name, value in whole.params.items():
        torch.testing.assert_close(parts.params[name], value, rtol=1e-5, atol=1e-5)
    assert caplog.text.count("out of memory with") == 2
    assert "a batch of 8 samples is taken in 4 parts of up to 2" in caplog.text


@pytest.mark.parametrize("policy", ["fail", "evict"])
def test_alone_the_other_policies_raise(policy):
    with pytest.raises(torch.OutOfMemoryError):
        run_of(room=4, policy=policy)


def test_another_policy_is_refused():
    with pytest.raises(ConfigError, match="oom_policy='retry': must be one of 'split', 'evict'"):
        run_of(room=8, policy="retry")
