import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.distributed.averaging.outer import DiLoCo, OuterAvg, SlowMo, make_outer

LR = 0.1


def walk(outer, consensuses, lrs=None, start=1.0):
    """Return where a parameter is after each window."""
    step, x, places = make_outer(outer), torch.tensor([start]), []
    for c, lr in zip(consensuses, lrs or [LR] * len(consensuses), strict=True):
        step.step(x, torch.tensor([c]), lr)
        places.append(x.item())
    return places


@pytest.mark.parametrize(
    ("outer", "consensuses", "wanted"),
    [
        (None, [0.9, 0.8], [0.9, 0.8]),
        (OuterAvg(), [0.9, 0.8], [0.9, 0.8]),
        (SlowMo(1.0, 0.9), [0.9, 0.85], [0.9, 0.76]),
        (SlowMo(1.0, 0.9, lr_aware=False), [0.9, 0.85], [0.9, 0.76]),
        (DiLoCo(0.7, 0.9), [0.9, 0.8], [0.867, 0.72119]),
        (lambda ps: torch.optim.SGD(ps, lr=1.0), [0.9, 0.8], [0.9, 0.8]),
    ],
)
def test_golden_vectors(outer, consensuses, wanted):
    assert walk(outer, consensuses) == pytest.approx(wanted, abs=1e-6)


def test_slow_momentum_is_kept_in_units_of_the_learning_rate():
    # u = 0.1/0.1 = 1, then 0.9 + 0.05/0.01 = 5.9, and the step is 0.01 of it
    assert walk(SlowMo(), [0.9, 0.85], [0.1, 0.01]) == pytest.approx([0.9, 0.841], abs=1e-6)
    blind = walk(SlowMo(lr_aware=False), [0.9, 0.85], [0.1, 0.01])
    assert blind == pytest.approx([0.9, 0.76], abs=1e-6)


def test_diloco_equals_nesterov_sgd_of_torch():
    places = torch.randn(20, generator=torch.Generator().manual_seed(3)).tolist()
    ours = walk(DiLoCo(0.7, 0.9), places)
    torchs = walk(lambda ps: torch.optim.SGD(ps, lr=0.7, momentum=0.9, nesterov=True), places)
    assert ours == pytest.approx(torchs, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    "outer",
    [
        SlowMo(),
        DiLoCo(),
        lambda ps: torch.optim.SGD(ps, lr=0.7, momentum=0.9),
        lambda ps: torch.optim.Adam(ps, lr=0.1),
    ],
    ids=["slowmo", "diloco", "sgd", "adam"],
)
@pytest.mark.parametrize("is_used_before", [False, True])
def test_a_step_goes_on_from_the_state_of_another(outer, is_used_before):
    first, x = make_outer(outer), torch.ones(4)
    for c in (0.9, 0.7):
        first.step(x, torch.full((4,), c), LR)
    saved, y = first.state(), x.clone()
    second = make_outer(outer)
    if is_used_before:
        second.step(torch.zeros(4), torch.ones(4), LR)
    second.load(saved)
    for c in (0.6, 0.65):
        first.step(x, torch.full((4,), c), LR)
        second.step(y, torch.full((4,), c), LR)
    assert torch.equal(x, y)


def test_state_of_another_outer_optimizer_is_refused():
    first = make_outer(SlowMo())
    first.step(torch.ones(1), torch.zeros(1), LR)
    for other in (DiLoCo(), None):
        with pytest.raises(ConfigError, match="outer state holds u"):
            make_outer(other).load(first.state())


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: SlowMo(0.0), "SlowMo(0.0"),
        (lambda: SlowMo(1.0, 1.0), "SlowMo(1.0"),
        (lambda: DiLoCo(-1), "DiLoCo"),
        (lambda: make_outer("slowmo"), "outer_optimizer='slowmo'"),
    ],
)
def test_bad_settings_are_refused(make, text):
    with pytest.raises(ConfigError, match=text.replace("(", r"\(")):
        make()


def test_slow_momentum_needs_a_learning_rate():
    with pytest.raises(ConfigError, match="lr_aware=False"):
        make_outer(SlowMo()).step(torch.ones(1), torch.zeros(1), 0.0)
