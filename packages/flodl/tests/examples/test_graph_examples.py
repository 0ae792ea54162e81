import math
from pathlib import Path
from xml.etree import ElementTree

import torch

from flodl.graph import FlowBuilder


def test_showcase_uses_every_builder_method(example):
    source = Path(example("showcase").__file__).read_text()
    unused = {"copy", "from_sequential", "output", "verbose"}
    methods = {name for name in vars(FlowBuilder) if not name.startswith("_")} - unused
    assert {name for name in methods if f".{name}(" not in source} == set()


def test_showcase_trains_draws_and_loads(example, tmp_path):
    showcase = example("showcase")
    model = showcase.main(tmp_path)
    losses = model.trend("loss").values
    assert len(losses) == showcase.EPOCHS
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0]
    for name in ("showcase.svg", "profile.svg"):
        ElementTree.parse(tmp_path / name)
    assert len((tmp_path / "training.log").read_text().splitlines()) == showcase.EPOCHS
    for name in ("showcase.dot", "training.html", "showcase.fdl.gz"):
        assert (tmp_path / name).stat().st_size > 1000

    model.disable_profiling()
    model.eval()
    x, context, _ = showcase.batches(0)[0]
    with torch.no_grad():
        model.reset_state()
        first, second = model(x, context), model(x, context)
        assert not torch.equal(first, second)
        model.reset_state()
        assert torch.equal(model(x, context), first)


def test_quickstart_learns(example):
    losses = example("quickstart").main(15)
    assert losses[-1] < 0.5 * losses[0]


def test_observation_decides_from_trends(example):
    epochs, rates = example("observation").main()
    assert epochs == len(rates)
    assert rates[-1] < rates[0]


def test_transfer_learning_reuses_the_encoder(example, tmp_path):
    module = example("transfer_learning")
    first, second, loss = module.main(tmp_path, steps=40)
    assert loss < 0.7
    assert not second.is_frozen("encoder")
    shapes = {name: value.shape for name, value in first.subgraph("encoder").state_dict().items()}
    assert shapes == {
        name: value.shape for name, value in second.subgraph("encoder").state_dict().items()
    }


def test_residual_classifier_tells_the_rings_apart(example):
    assert example("flowbuilder_residual").main(40) > 0.95
