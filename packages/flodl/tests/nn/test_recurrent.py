import pytest
import torch
from torch import nn

import flodl.nn.recurrent as under_test
from flodl.nn import First, Unrolled


def test_first_returns_the_sequence_of_a_recurrent_layer():
    layer, x = nn.GRU(3, 4, batch_first=True), torch.randn(2, 5, 3)
    assert torch.equal(First(layer)(x), layer(x)[0])
    with pytest.raises(TypeError, match="First\\(Linear\\): it returned Tensor"):
        First(nn.Linear(3, 3))(x)


@pytest.mark.parametrize(
    ("cell", "layer"),
    [(nn.GRUCell, nn.GRU), (nn.LSTMCell, nn.LSTM), (nn.RNNCell, nn.RNN)],
)
def test_unrolled_cell_equals_the_layer_of_the_same_weights(cell, layer):
    whole = layer(3, 4, batch_first=True)
    steps = cell(3, 4)
    steps.load_state_dict({k.removesuffix("_l0"): v for k, v in whole.state_dict().items()})
    x = torch.randn(2, 5, 3)
    torch.testing.assert_close(Unrolled(steps, return_sequences=True)(x), whole(x)[0])
    torch.testing.assert_close(Unrolled(steps)(x), whole(x)[0][:, -1])


def looped(cell, x, *, wants_all):
    state, outputs = x.new_zeros(x.shape[0], cell.hidden_size), []
    for step in range(x.shape[1]):
        state = cell(x[:, step], state)
        outputs.append(state)
    return torch.stack(outputs, 1) if wants_all else state


def step(gates, hidden, state):
    """Compute what torch's fused step computes on a GPU."""
    (r_i, z_i, n_i), (r_h, z_h, n_h) = gates.chunk(3, 1), hidden.chunk(3, 1)
    r, z = torch.sigmoid(r_i + r_h), torch.sigmoid(z_i + z_h)
    n = torch.tanh(n_i + r * n_h)
    return n + z * (state - n), torch.cat([r, z, n, state, n_h], 1)


def step_backward(grad, workspace, has_bias):
    assert not has_bias
    r, z, n, state, n_h = workspace.chunk(5, 1)
    of_n = grad * (1 - z) * (1 - n * n)
    of_r, of_z = of_n * n_h * r * (1 - r), grad * (state - n) * z * (1 - z)
    gates, hidden = torch.cat([of_r, of_z, of_n], 1), torch.cat([of_r, of_z, of_n * r], 1)
    return gates, hidden, grad * z, None, None


def compare(cell, x, *, wants_all):
    module = Unrolled(cell, return_sequences=wants_all)
    weights = torch.randn_like(looped(cell, x, wants_all=wants_all))
    leaves = [x, *cell.parameters()]
    expected = looped(cell, x, wants_all=wants_all)
    found = module(x)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((out * weights).sum(), leaves) for out in (found, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("wants_all", [False, True])
@pytest.mark.parametrize("steps", [1, 5])
def test_gradients_of_all_steps_at_once_are_those_of_the_loop(monkeypatch, wants_all, steps):
    monkeypatch.setattr(under_test, "_has_fused_steps", lambda *_: True)
    monkeypatch.setattr(under_test, "_step", step)
    monkeypatch.setattr(under_test, "_step_backward", step_backward)
    cell = nn.GRUCell(3, 4).double()
    compare(
        cell, torch.randn(2, steps, 3, dtype=torch.float64).requires_grad_(), wants_all=wants_all
    )


@pytest.mark.cuda
@pytest.mark.parametrize("wants_all", [False, True])
def test_on_a_gpu_the_fused_steps_equal_the_loop(wants_all):
    cell = nn.GRUCell(33, 17, device="cuda", dtype=torch.float64)
    x = torch.randn(5, 7, 33, device="cuda", dtype=torch.float64).requires_grad_()
    assert under_test._has_fused_steps(cell, x)
    compare(cell, x, wants_all=wants_all)


def test_calls_that_somebody_watches_are_made():
    cell, seen = nn.GRUCell(3, 4), []
    cell.register_forward_hook(lambda *_: seen.append(1))
    Unrolled(cell)(torch.randn(2, 5, 3))
    assert len(seen) == 5


def test_what_cannot_be_unrolled_is_refused():
    with pytest.raises(TypeError, match="Unrolled\\(Linear\\): a recurrent cell has a hidden_size"):
        Unrolled(nn.Linear(3, 4))
    with pytest.raises(ValueError, match="inputs of shape \\[2, 0, 3\\]"):
        Unrolled(nn.GRUCell(3, 4))(torch.randn(2, 0, 3))
