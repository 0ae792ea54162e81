import pytest
import torch

from ddp_bench.speed.models import MODELS


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_graph_computes_what_the_plain_model_does(model):
    plain, graph = model.pair(is_small=True)
    x, y = model.small.batch(torch.Generator().manual_seed(0))
    ours, theirs = model.loss(graph(x), y), model.loss(plain(x), y)
    assert torch.allclose(ours, theirs, rtol=1e-6)
    ours.backward()
    theirs.backward()
    sizes = sorted(p.grad.abs().sum().item() for p in graph.parameters())
    assert sizes == pytest.approx(sorted(p.grad.abs().sum().item() for p in plain.parameters()))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_full_size_has_the_published_number_of_parameters(model):
    with torch.device("meta"):
        plain = model.full.make()
    assert sum(p.numel() for p in plain.parameters()) == model.params
