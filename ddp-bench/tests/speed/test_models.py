import pytest
import torch

from ddp_bench.errors import UsageError
from ddp_bench.speed.graphs import graph_of
from ddp_bench.speed.models import EXTRAS, MODELS, find

ALL = (*MODELS, *EXTRAS)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("model", ALL, ids=lambda model: model.name)
def test_graph_computes_what_the_plain_model_does(model, batched):
    plain, _ = model.pair(is_small=True)
    graph = graph_of(plain, batched=batched)
    x, y = model.small.batch(torch.Generator().manual_seed(0))
    ours, theirs = model.loss(graph(x), y), model.loss(plain(x), y)
    assert torch.allclose(ours, theirs, rtol=1e-6)
    ours.backward()
    theirs.backward()
    sizes = gradients_of(graph)
    assert sizes == pytest.approx(gradients_of(plain))


def gradients_of(model):
    return sorted(p.grad.abs().sum().item() for p in model.parameters() if p.grad is not None)


def test_extra_models_are_not_of_the_ten():
    assert len(MODELS) == 10
    assert not any(model.is_extra for model in MODELS)
    assert all(model.is_extra for model in EXTRAS)


def test_unknown_model_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match="there are mlp, convnet"):
        find("resnet")


@pytest.mark.parametrize("model", ALL, ids=lambda model: model.name)
def test_full_size_has_the_published_number_of_parameters(model):
    with torch.device("meta"):
        plain = model.full.make()
    assert sum(p.numel() for p in plain.parameters()) == model.params
