import pytest
import torch
from torch import nn as torch_nn

from flodl.nn import First, SelfAttention


@pytest.fixture(params=[False, True], ids=["full", "causal"])
def pair(request):
    """Ours and torch's with the same weights."""
    ours = SelfAttention(8, 2, causal=request.param).double()
    theirs = torch_nn.MultiheadAttention(8, 2, batch_first=True).double()
    theirs.in_proj_weight.data.copy_(ours.qkv.weight.data)
    theirs.in_proj_bias.data.copy_(ours.qkv.bias.data)
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    return ours, theirs


def reference(ours, theirs, x, key, value, allowed=None):
    blocked = torch.zeros(x.shape[1], key.shape[1], dtype=torch.bool)
    if ours.causal:
        blocked = ~torch.ones_like(blocked).tril()
    if allowed is not None:
        blocked = blocked | ~allowed
    return theirs(x, key, value, attn_mask=blocked, need_weights=False)[0]


def test_attention_on_itself_is_torchs(pair):
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(pair[0](x), reference(*pair, x, x, x), rtol=0, atol=1e-12)


def test_references_make_it_cross_attention(pair):
    x, key, value = (torch.randn(3, n, 8, dtype=torch.float64) for n in (5, 7, 7))
    both = pair[0](x, key=key, value=value)
    torch.testing.assert_close(both, reference(*pair, x, key, value), rtol=0, atol=1e-12)
    one = pair[0](x, key)
    torch.testing.assert_close(one, reference(*pair, x, key, key), rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", ["[S, T]", "[B, S, T]", "[B, 1, S, T]", "added"])
def test_masks_limit_what_is_seen(pair, form):
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    allowed = torch.rand(5, 5) < 0.5
    allowed.fill_diagonal_(True)
    mask = {
        "[S, T]": allowed,
        "[B, S, T]": allowed.expand(3, 5, 5),
        "[B, 1, S, T]": allowed.expand(3, 1, 5, 5),
        "added": torch.zeros(5, 5, dtype=torch.float64).masked_fill(~allowed, float("-inf")),
    }[form]
    expected = reference(*pair, x, x, x, allowed)
    torch.testing.assert_close(pair[0](x, mask=mask), expected, rtol=0, atol=1e-12)


def test_a_causal_position_ignores_what_follows():
    module = SelfAttention(8, 4, causal=True)
    x = torch.randn(2, 6, 8)
    changed = x.clone()
    changed[:, 4:] = 0
    torch.testing.assert_close(module(x)[:, :4], module(changed)[:, :4])


def test_dropout_acts_while_training_only():
    module = SelfAttention(8, 2, dropout=0.5)
    x = torch.randn(2, 6, 8)
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
def test_gradients_are_those_of_finite_differences(causal, cross):
    module = SelfAttention(4, 2, causal=causal).double()
    names = [name for name, _ in module.named_parameters()]
    inputs = [
        torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(1 + cross)
    ]
    values = [p.detach().clone().requires_grad_() for p in module.parameters()]

    def run(*tensors):
        parameters = dict(zip(names, tensors[len(inputs) :], strict=True))
        return torch.func.functional_call(module, parameters, tensors[: len(inputs)])

    assert torch.autograd.gradcheck(run, [*inputs, *values], eps=1e-6, atol=1e-6)


def test_impossible_sizes_are_refused():
    for arguments in ((8, 3), (8, 0), (0, 1)):
        with pytest.raises(ValueError, match="multiple of num_heads"):
            SelfAttention(*arguments)
    with pytest.raises(ValueError, match=r"dropout=1\.0"):
        SelfAttention(8, 2, dropout=1.0)
    with pytest.raises(ValueError, match=r"x has shape \[2, 8\]"):
        SelfAttention(8, 2)(torch.zeros(2, 8))
    with pytest.raises(ValueError, match=r"key has shape \[2, 3, 7\]"):
        SelfAttention(8, 2)(torch.zeros(2, 3, 8), torch.zeros(2, 3, 7))


def test_first_passes_the_gradient_of_the_first_item():
    module = First(torch_nn.GRU(3, 2, batch_first=True)).double()
    x = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(module, [x], eps=1e-6, atol=1e-6)
    assert torch.equal(module(x), module.module(x)[0])


def test_first_refuses_what_has_no_first_item():
    with pytest.raises(TypeError, match=r"First\(Linear\): it returned Tensor"):
        First(torch_nn.Linear(2, 2))(torch.zeros(1, 2))
