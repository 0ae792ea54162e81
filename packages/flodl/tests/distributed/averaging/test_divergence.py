import math

import pytest
import torch

from flodl.distributed.averaging.divergence import measure, norm


def test_delta_and_cosine_of_a_known_triangle():
    p, c = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
    found = measure(p.clone(), c, norm(p))
    assert found.delta == pytest.approx(5 / 4)
    assert (found.pre_norm, found.post_norm) == (3.0, 4.0)
    assert found.cosine == pytest.approx(0.0, abs=1e-12)
    same = measure(c.clone(), c, 4.0)
    assert same.delta == 0.0
    assert same.cosine == pytest.approx(1.0)


def test_norms_sum_in_double_precision():
    values = torch.full((2_000_000,), 1e-3)
    exact = math.sqrt(2_000_000) * float(values[0])
    assert norm(values) == pytest.approx(exact, rel=1e-10)


def test_a_consensus_of_zero_has_no_divergence():
    assert measure(torch.ones(3), torch.full((3,), 1e-12), 1.0) is None
