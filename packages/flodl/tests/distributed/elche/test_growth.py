"""Proposals of a longer window."""

import pytest

from flodl.distributed.elche.growth import GrowthRule, Phase

RULE = GrowthRule(target=0.10, least=10, most=1000)


@pytest.mark.parametrize(
    ("anchor", "fixed_ms", "grown"),
    [
        (1, 1000.0, 2),  # a guard brought it below the least: no more than doubled all the same
        (3, 1000.0, 6),
        (3, 0.5, 6),  # overhead 0.143 asks for 5, and 10 is as far as doubling does not reach
        (8, 1.0, 10),  # overhead 0.111 asks for 9, and the least is in reach
        (10, 1000.0, 20),
        (900, 9000.0, 1000),
        (10, 1.0, None),  # overhead 0.091
    ],
)
def test_the_anchor_grows_to_the_least_and_at_most_doubles(anchor, fixed_ms, grown):
    assert RULE.propose(anchor, 1.0, fixed_ms, Phase.STABLE) == grown
