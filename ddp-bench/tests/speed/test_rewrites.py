import copy

import pytest
import torch

from ddp_bench.speed.models import find
from ddp_bench.speed.rewrites import REWRITTEN, rewritten


@pytest.mark.parametrize("name", REWRITTEN)
def test_rewritten_model_computes_what_the_plain_one_does(name):
    model = find(name)
    plain, _ = model.pair(is_small=True)
    ours = rewritten(copy.deepcopy(plain))
    x, y = model.small.batch(torch.Generator().manual_seed(0))
    expected, found = model.loss(plain(x), y), model.loss(ours(x), y)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    expected.backward()
    found.backward()
    for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
        scale = theirs.grad.abs().max().item()
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-5 * scale)


def test_model_without_a_rewritten_form_is_refused():
    plain, _ = find("mlp").pair(is_small=True)
    with pytest.raises(TypeError, match="Chain has no rewritten form"):
        rewritten(plain)
