import re

import pytest
import torch
from torch import nn

from flodl import ElCheConfig, FlowBuilder, TensorDataSet
from flodl.distributed.config import ElasticConfig
from flodl.distributed.protocol import Frame, decode, encode
from flodl.distributed.protocol.values import Device
from flodl.distributed.worker.job import Job
from flodl.engine.config import StepConfig
from flodl.metrics.scalars import record_scalar
from flodl.records.board import RunBoard
from flodl.trainer.ranks.costs import COSTS, costs, show_costs, timed_kind

CPU = torch.device("cpu")


def graph(_):
    flow = FlowBuilder(nn.Linear(3, 4)).through(nn.Dropout(0.5)).through(nn.Linear(4, 1))
    return flow.label("small").build()


def mean_square(model, batch):
    assert not model.training
    assert not torch.is_grad_enabled()
    record_scalar("rows", float(len(batch["x"])))
    return model(batch["x"]).square().mean()


def job(model_factory=graph, train_step=mean_square):
    return Job(
        model_factory=model_factory,
        optim_factory=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        train_step=train_step,
        dataset=TensorDataSet(x=torch.rand(10, 3)),
        batch_size=16,
        num_epochs=1,
        seed=0,
        elche=ElCheConfig.cpu_cadence(),
        elastic=ElasticConfig(),
        step=StepConfig(),
    )


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (["A", "A", "A"], ["A", None, None]),
        (["A", "B", "A", "B"], ["A", "B", None, None]),
    ],
)
def test_the_first_rank_of_each_kind_of_device_tells(kinds, told):
    devices = [Device(uuid=f"u{n}", name=kind, index=n) for n, kind in enumerate(kinds)]
    assert [timed_kind(devices, f"host/{n}") for n in range(len(kinds))] == told


def test_a_rank_that_came_later_tells_nothing():
    devices = [Device(uuid="u0", name="A", index=0)]
    assert timed_kind(devices, "host/1") is None
    assert timed_kind(devices, "named otherwise") is None


def test_a_graph_is_pictured_with_times_and_shown_under_its_kind():
    told = costs(job(), CPU, "fast card")
    frame = Frame(run="n", gen=0, seq=1, member="u", message=told)
    message = decode(encode(frame)).message
    assert message.path == COSTS
    board = RunBoard()
    before = board.tree.seq
    for _ in range(2):
        show_costs(board, message.values)
    show_costs(board, {**message.values, "kind": "slow card"})
    assert [heatmap.model for heatmap in board.heatmaps] == ["fast card", "slow card"]
    picture = board.heatmaps[0].svg
    assert picture.count("<title>Linear") == 2
    assert re.search(r">[\d.]+ ?(µs|us|ms)<", picture)
    assert board.tree.seq == before + 3


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (job(model_factory=lambda _: nn.Linear(3, 1)), "Linear is no flodl.Graph"),
        (job(train_step=lambda model, batch: model(batch["nothing"])), "could not be timed"),
    ],
)
def test_what_cannot_be_timed_is_a_warning(made, told, caplog):
    assert costs(made, CPU, "card") is None
    assert told in caplog.text
