import pickle

import pytest
import torch

from flodl.core.errors import NodeError
from flodl.nn import Detach, Lambda, Reshape, StateAdd


def test_reshape_keeps_the_number_of_elements():
    x = torch.arange(12.0)
    assert torch.equal(Reshape(3, -1)(x), x.reshape(3, 4))
    assert repr(Reshape(3, -1)) == "Reshape(3, -1)"


def test_state_add_sums_all_references():
    x, a, b = torch.randn(3, 2, 2)
    assert torch.equal(StateAdd()(x), x)
    assert torch.equal(StateAdd()(x, refs={"a": a, "b": b}), x + a + b)


def test_state_add_never_broadcasts():
    with pytest.raises(NodeError, match=r"'a' has shape \(1, 2\), the stream has \(3, 2\)"):
        StateAdd()(torch.zeros(3, 2), refs={"a": torch.zeros(1, 2)})


def test_detach_stops_gradients():
    x = torch.ones(2, requires_grad=True)
    assert not Detach()(x * 2).requires_grad


def test_lambda_has_the_name_of_its_function_and_pickles():
    module = Lambda(torch.relu)
    assert module.flodl_name == "relu"
    assert torch.equal(pickle.loads(pickle.dumps(module))(torch.tensor([-1.0])), torch.zeros(1))
