from flodl.graph.ir import Node, Plan, Port
from flodl.graph.schedule import in_order, last_uses, levels


def node(name, *sources):
    return Node(id=name, op="module", type="T", inputs=tuple(map(Port, sources)))


def plan(*nodes):
    return Plan(inputs=("a",), nodes=nodes, outputs=(("", Port(nodes[-1].id)),))


def test_readers_follow_what_they_read_and_the_rest_keeps_its_order():
    nodes = [node("a"), node("d", "a", "c"), node("b", "a"), node("c", "a", "a")]
    assert [item.id for item in in_order(nodes)] == ["a", "b", "c", "d"]


def test_level_is_the_longest_way():
    result = levels(plan(node("a"), node("b", "a"), node("c", "b"), node("d", "a", "c")))
    assert result == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_ports_die_at_their_last_reader_unless_kept():
    nodes = plan(node("a"), node("b", "a"), node("c", "a", "b"), node("d", "c"))
    assert last_uses(nodes, {Port("d")}) == {"c": [Port("a"), Port("b")], "d": [Port("c")]}
    assert last_uses(nodes, {Port("b"), Port("c")}) == {"c": [Port("a")]}
