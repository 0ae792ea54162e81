import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.nn import LearnedHalt, ThresholdHalt


def test_threshold_looks_at_the_largest_element():
    halt = ThresholdHalt(1.5)
    assert halt(torch.tensor([[1.0, -9.0]])) == -0.5
    assert halt(torch.tensor([[1.0], [2.0]])) == 0.5
    assert not list(halt.parameters())
    assert halt.flodl_attrs() == {"threshold": 1.5}


def test_learned_halt_gives_one_logit_a_row():
    assert LearnedHalt(3)(torch.ones(2, 3)).shape == (2, 1)


@pytest.mark.parametrize(("kind", "value"), [(ThresholdHalt, "a"), (LearnedHalt, 0)])
def test_what_cannot_be_is_refused(kind, value):
    with pytest.raises(ConfigError, match=kind.__name__):
        kind(value)
