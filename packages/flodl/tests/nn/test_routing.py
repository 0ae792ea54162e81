import pytest
import torch

from flodl.core.errors import ConfigError, NodeError
from flodl.nn import ArgmaxSelector, FixedSelector, SigmoidRouter, SoftmaxRouter

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


def test_softmax_weights_sum_to_one():
    assert torch.allclose(SoftmaxRouter(3, 4)(X).sum(-1), torch.ones(5))


def test_sigmoid_weights_are_independent():
    router = SigmoidRouter(3, 4)
    assert torch.equal(router(X), torch.sigmoid(router.proj(X)))


@pytest.mark.parametrize("router", [SoftmaxRouter(3, 4), SigmoidRouter(3, 4), ArgmaxSelector(3, 4)])
def test_references_are_added_to_the_stream(router):
    assert torch.equal(router(X, refs={"a": X, "b": -X}), router(X))
    with pytest.raises(NodeError, match=r"reference 'a' has shape \(1, 3\)"):
        router(X, refs={"a": X[:1]})


def test_argmax_looks_at_the_mean_over_all_leading_dimensions():
    selector = ArgmaxSelector(3, 4)
    x = torch.randn(2, 5, 3)
    assert selector(x) == selector.proj(x).mean((0, 1)).argmax()


def test_fixed_selector_is_never_negative():
    assert FixedSelector(2)(X) == 2
    with pytest.raises(ConfigError, match=r"FixedSelector\(-1\)"):
        FixedSelector(-1)


@pytest.mark.parametrize("kind", [SoftmaxRouter, SigmoidRouter, ArgmaxSelector])
@pytest.mark.parametrize(("sizes", "wrong"), [((0, 2), "dim=0"), ((3, 1.5), r"n=1\.5")])
def test_sizes_that_cannot_be_are_refused(kind, sizes, wrong):
    with pytest.raises(ConfigError, match=rf"{kind.__name__}\({wrong}\)"):
        kind(*sizes)
