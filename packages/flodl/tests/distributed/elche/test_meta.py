import pytest

from flodl.distributed.config import STABLE, SUPPRESS_GROWTH, nudge_down
from flodl.distributed.elche import MetaController, Phase
from flodl.distributed.elche.meta import shrink_factor


@pytest.mark.parametrize(
    ("anchors", "expected"),
    [
        ([100] * 5, 0.5),
        ([100] * 4 + [200], 0.1667),
        ([200, 200, 100, 100, 100], 0.6429),
    ],
)
def test_a_window_that_grew_shrinks_more(anchors, expected):
    assert shrink_factor(0.5, anchors) == pytest.approx(expected, abs=5e-5)


def test_a_cliff_of_the_learning_rate_shrinks_the_window_once():
    meta = MetaController()
    seen = [meta.observe(lr, 100, STABLE, Phase.STABLE) for lr in (0.1, 0.1, 0.01, 0.01, 0.008)]
    assert seen == [STABLE, STABLE, nudge_down(0.5), STABLE, STABLE]


@pytest.mark.parametrize(
    ("phase", "windows", "base"),
    [(Phase.WARMUP, 5, 0.3), (Phase.STABLE, 3, 0.5), (Phase.MATURE, 2, 0.7)],
)
def test_divergence_that_lasts_shrinks_the_window(phase, windows, base):
    meta = MetaController()
    meta.observe(None, 100, STABLE, phase)
    for _ in range(windows - 1):
        assert meta.observe(None, 100, SUPPRESS_GROWTH, phase) == SUPPRESS_GROWTH
    assert meta.observe(None, 100, SUPPRESS_GROWTH, phase) == nudge_down(base)


def test_both_reasons_at_once_multiply_within_bounds():
    meta = MetaController()
    meta.observe(0.1, 100, SUPPRESS_GROWTH, Phase.MATURE)
    assert meta.observe(0.01, 100, SUPPRESS_GROWTH, Phase.MATURE) == nudge_down(0.5 * 0.7)


def test_the_stronger_nudge_of_guard_and_meta_counts():
    meta = MetaController()
    meta.observe(0.1, 100, STABLE, Phase.STABLE)
    assert meta.observe(0.01, 100, nudge_down(0.2), Phase.STABLE) == nudge_down(0.2)


def test_nothing_happens_while_probing():
    meta = MetaController()
    meta.observe(0.1, 100, STABLE, Phase.PROBE)
    assert meta.observe(0.01, 100, STABLE, Phase.PROBE) == STABLE


def test_it_is_settled_while_the_anchor_stays():
    meta = MetaController()
    assert not meta.is_settled()
    for _ in range(5):
        meta.observe(None, 100, STABLE, Phase.STABLE)
    assert meta.is_settled()
    meta.observe(None, 200, STABLE, Phase.STABLE)
    assert not meta.is_settled()


def test_saved_state_goes_on():
    meta = MetaController()
    meta.observe(0.1, 100, SUPPRESS_GROWTH, Phase.MATURE)
    twin = MetaController.from_state(meta.to_state())
    assert twin.observe(0.01, 100, SUPPRESS_GROWTH, Phase.MATURE) == nudge_down(0.35)
