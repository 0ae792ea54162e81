"""The same on real GPUs: two devices, NCCL between them."""

import copy
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

from flodl.core.errors import CudaBeforeRunError
from flodl.data import DataLoader, TensorDataSet
from flodl.distributed.replica import DdpConfig
from flodl.distributed.replica.replicas import ReplicaStepper
from flodl.graph import FlowBuilder

pytestmark = [
    pytest.mark.nccl,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
CLOSE = {"rel": 1e-5, "abs": 1e-6}


@pytest.fixture(autouse=True)
def exact_products(monkeypatch):
    monkeypatch.delenv("FLODL_FAKE_DEVICES", raising=False)
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = allowed


@pytest.fixture
def both(small):
    """A graph on two GPUs, and the like on one, with loaders of the same batches."""

    def ready(optimizer=small.sgd, config=None, **options):
        many, one = small.build(), small.build("cuda:0")
        many.distribute(small.build)
        for graph in (many, one):
            if config is not None:
                graph.configure_el_che(config)
            graph.set_optimizer(optimizer)
            graph.set_data_loader(small.loader(device="cuda:0", **options), "x")
        assert len(many.devices) == torch.cuda.device_count()
        return many, one

    return ready


@pytest.mark.parametrize("options", [{}, {"streaming": True}], ids=["resident", "streaming"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_losses_are_those_of_one_gpu(both, small, optimizer, options):
    many, one = both(getattr(small, optimizer), **options)
    assert isinstance(many.flodl_training.stepper, ReplicaStepper)
    assert small.train(many) == pytest.approx(small.train(one), **CLOSE)
    for replica in many.flodl_training.stepper.replicas:
        for ours, theirs in zip(many.parameters(), replica.parameters(), strict=True):
            assert torch.equal(ours.cpu(), theirs.cpu())
            assert ours.device != theirs.device


def test_tags_and_traces_are_gathered_with_gradients(both):
    many, one = both()
    losses = {}
    for graph in (many, one):
        losses[graph] = []
        graph.set_loss_fn(
            lambda out, batch, ctx: (
                (out - batch["y"]).square().mean()
                + ctx.tags["hidden"].square().mean()
                + sum(value.abs().mean() for value in ctx.traces["steps"])
            )
        )
        for batch in graph.epoch(0):
            loss = graph.forward_batch(batch)
            loss.backward()
            graph.step()
            losses[graph].append(loss.item())
    assert losses[many] == pytest.approx(losses[one], **CLOSE)


def test_a_direct_call_gives_its_output_where_its_input_is(both, small):
    many, one = both()
    for device in ("cpu", "cuda:0", "cuda:1"):
        output = many(small.x.to(device))
        assert output.device == torch.device(device)
        wanted = one(small.x.to("cuda:0")).cpu()
        torch.testing.assert_close(output.cpu(), wanted, rtol=1e-4, atol=1e-5)
        output.square().mean().backward()
        many.step()
        one(small.x.to("cuda:0")).square().mean().backward()
        one.step()


def test_each_gpu_reads_its_own_rows(both):
    many, _ = both()
    batch = next(iter(many.epoch(0)))
    assert [own[0]["x"].device for own in batch.shards] == list(many.devices)
    assert batch["y"].device.type == "cuda", "resident loaders: where most memory is free"
    many, _ = both(streaming=True)
    assert next(iter(many.epoch(0)))["y"].device.type == "cpu"


def test_el_che_trains_on_two_gpus(both, small):
    many, _ = both(config=DdpConfig(max_anchor=2, speed_hint=(0, 2.0)))
    losses = small.train(many, epochs=4)
    assert many.has_el_che
    assert losses[-1] < losses[0]


def test_a_slower_gpu_gets_fewer_rows(small):
    """GPU 1 is slowed by work of its own in each call; its share follows."""

    class Slow(nn.Module):
        def forward(self, x):
            if x.device.index == 1:
                torch.cuda._sleep(20_000_000)
            return x

    def build(device="cuda:0"):
        return FlowBuilder(Slow()).through(nn.Linear(4, 1)).build().to(device)

    graph = build()
    graph.distribute(build)
    graph.set_optimizer(small.sgd)
    x = torch.randn(64, 4, device="cuda:0")
    for _ in range(12):
        graph(x).square().mean().backward()
        graph.step()
    assert graph.chunk_ratios[1] < 0.35
    assert graph.shard_sizes[1] < graph.shard_sizes[0]


def test_autocast_reaches_every_device(both, small):
    many, _ = both()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        many(small.x.to("cuda:0"))
        assert many.tagged("hidden").dtype is torch.bfloat16


def test_work_follows_the_callers_stream(both, small):
    many, one = both()
    stream = torch.cuda.Stream("cuda:0")
    with torch.cuda.stream(stream):
        x = small.x.to("cuda:0")
        torch.cuda._sleep(10_000_000)
        x = x + 1
        output = many(x)
    stream.synchronize()
    torch.testing.assert_close(output, one(small.x.to("cuda:0") + 1))


def test_a_run_after_it_says_that_gpus_were_touched():
    program = textwrap.dedent("""
        import torch
        from torch import nn
        from flodl import FlowBuilder, TensorDataSet, Trainer
        build = lambda device: FlowBuilder(nn.Linear(2, 1)).build().to(device)
        sgd = lambda params: torch.optim.SGD(params, lr=0.1)
        model = build("cpu")
        Trainer.setup(model, build, sgd)
        assert model.world_size >= 2
        data = TensorDataSet(torch.ones(8, 2))
        step = lambda model, batch: model(batch[0]).mean()
        Trainer.builder(build, sgd, step).dataset(data).batch_size(2).num_epochs(1).run()
    """)
    environ = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert CudaBeforeRunError.__name__ in ran.stderr, ran.stderr[-2000:]


def test_two_processes_on_two_gpus_train_like_replicas(tmp_path):
    folder, program = tmp_path / "run", Path(__file__).parent / "programs" / "loop.py"
    alone = tmp_path / "replicas"
    folder.mkdir()
    alone.mkdir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    for command, place in (
        ([sys.executable], alone),
        ([*torchrun, "--nproc-per-node", "2"], folder),
    ):
        subprocess.run([*command, str(program), str(place)], timeout=240, check=True)
    replicas = json.loads((alone / "0").read_text())
    ranks = [json.loads((folder / str(rank)).read_text()) for rank in range(2)]
    together = [sum(step) for step in zip(*(rank["losses"] for rank in ranks), strict=True)]
    assert together == pytest.approx(replicas["losses"], rel=1e-5, abs=1e-6)


def test_any_data_set_streams_to_both(both, small):
    many, _ = both()
    data = TensorDataSet(x=small.x, y=small.y)
    many.set_data_loader(DataLoader(data, batch_size=10, workers=2, prefetch=2), "x")
    assert len(small.train(many, epochs=1)) == 5


def test_weights_written_through_data_reach_both(both, small):
    losses = {}
    for graph in both():
        losses[graph] = []
        for batch in graph.epoch(0):
            loss = small.square(graph.forward_batch(batch), batch)
            loss.backward()
            graph.step()
            for parameter in graph.parameters():
                parameter.data.clamp_(-0.2, 0.2)
            losses[graph].append(loss.item())
    many, one = losses.values()
    assert many == pytest.approx(one, **CLOSE)


def test_what_two_gpus_saved_goes_on_on_one_and_on_both(small):
    made = []

    def adam(parameters):
        made.append(small.adam(parameters))
        return made[-1]

    def ready(build_on, *, is_spread):
        graph, loader = small.build(build_on), small.loader(device="cuda:0")
        if is_spread:
            graph.distribute(small.build)
        made.clear()
        graph.set_optimizer(adam)
        graph.set_data_loader(loader, "x")
        return graph, loader

    wanted = small.train(ready("cuda:0", is_spread=False)[0], epochs=1)
    graph, loader = ready("cpu", is_spread=True)
    taken = []
    for batch in graph.epoch(0):
        loss = small.square(graph.forward_batch(batch), batch)
        loss.backward()
        graph.step()
        taken.append(loss.item())
        if len(taken) == 3:
            break
    saved = graph.state_dict(), made[0].state_dict(), loader.state_dict()
    for is_spread in (False, True):
        graph, loader = ready("cuda:0", is_spread=is_spread)
        graph.load_state_dict(saved[0])
        made[-1].load_state_dict(copy.deepcopy(saved[1]))  # torch's optimizers take the tensors
        loader.load_state_dict(saved[2])
        assert taken + small.train(graph, epochs=1) == pytest.approx(wanted, **CLOSE)
