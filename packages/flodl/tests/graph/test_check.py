import pytest

from flodl.core.errors import FlowWarning
from flodl.graph.check import warn_of_doubts
from flodl.graph.ir import Node, Plan, Port, Tag


def test_unused_inputs_are_no_dead_steps():
    nodes = (
        Node(id="a", op="input", type="input"),
        Node(id="b", op="input", type="input"),
        Node(id="c", op="module", type="T", inputs=(Port("a"),)),
        Node(id="d", op="module", type="T", inputs=(Port("a"),)),
        Node(id="e", op="module", type="T", inputs=(Port("a"),)),
    )
    plan = Plan(
        inputs=("a", "b"), nodes=nodes, outputs=(("", Port("c")),), tags=(Tag("t", Port("d")),)
    )
    with pytest.warns(FlowWarning, match="e is computed but never used") as caught:
        warn_of_doubts(plan, {}, stacklevel=1)
    assert len(caught) == 1
