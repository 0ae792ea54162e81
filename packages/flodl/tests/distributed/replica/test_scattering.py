from typing import NamedTuple

import pytest
import torch

from flodl.core.errors import GraphInputError
from flodl.distributed.replica.scattering import rows_of, scatter

CPU = torch.device("cpu")


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


def test_rows_go_to_devices_and_the_rest_to_all():
    x, table = torch.arange(6.0).reshape(3, 2), torch.ones(5, 5)
    first, second = scatter((x, table), {"deep": {"y": [x]}, "on": True}, [2, 1], [CPU] * 2)
    assert torch.equal(first[0][0], x[:2])
    assert torch.equal(second[0][0], x[2:])
    assert torch.equal(first[1]["deep"]["y"][0], x[:2])
    assert all(part[0][1].shape == (5, 5) and part[1]["on"] is True for part in (first, second))


def test_named_pairs_stay_what_they_are_and_numbers_are_not_cut():
    part, none = scatter((Pair(torch.ones(2, 1), torch.tensor(3.0)),), {}, [2, 0], [CPU] * 2)
    assert none is None
    assert isinstance(part[0][0], Pair)
    assert part[0][0].right == 3.0


def test_gradients_flow_back_through_the_cut():
    x = torch.ones(4, 1, requires_grad=True)
    first, second = scatter((x,), {}, [1, 3], [CPU] * 2)
    (2 * first[0][0].sum() + 5 * second[0][0].sum()).backward()
    assert x.grad.flatten().tolist() == [2, 5, 5, 5]


def test_rows_are_those_of_the_first_tensor_with_any():
    assert rows_of((torch.tensor(1.0), [torch.ones(7, 2)]), {}) == 7
    with pytest.raises(GraphInputError, match="no"):
        rows_of((1, "text"), {})


def test_a_call_without_rows_goes_to_the_first_device():
    first, second = scatter((torch.ones(0, 2),), {}, [0, 0], [CPU] * 2)
    assert first[0][0].shape == (0, 2)
    assert second is None
