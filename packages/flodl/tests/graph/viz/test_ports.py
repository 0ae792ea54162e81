from torch import nn

from flodl.graph import FlowBuilder
from flodl.graph.viz.layout import lay_out
from flodl.graph.viz.scene import scene_of
from flodl.nn import SoftmaxRouter, StateAdd


def linear():
    return nn.Linear(4, 4)


def laid_out(graph, expand=0):
    layout = lay_out(scene_of(graph, expand))
    return layout, {(r.link.source, r.link.target, r.link.kind): r for r in layout.routes}


def test_stream_spreads_in_a_frame_and_comes_together_in_its_middle():
    graph = FlowBuilder(linear()).gate(SoftmaxRouter(4, 2), [linear(), linear()]).build()
    layout, routes = laid_out(graph)
    frame = layout.boxes["gate_2"]
    outer = routes["linear_1", "gate_2", "stream"]
    assert not outer.has_head
    assert outer.points[-1] == (frame.x, frame.top)
    for slot in ("router", "experts.0", "experts.1"):
        route = routes["gate_2", f"gate_2.{slot}", "stream"]
        box = layout.boxes[f"gate_2.{slot}"]
        assert route.has_head
        assert (route.points[0], route.points[-1]) == (outer.points[-1], (box.x, box.top))
    leaving = routes["gate_2", "output.stream", "stream"]
    assert leaving.points[0][0] == leaving.points[-1][0] == frame.x


def test_arrows_go_on_to_the_item_inside_an_opened_graph():
    inner = FlowBuilder(linear()).also(linear()).label("inner").build()
    layout, routes = laid_out(FlowBuilder(linear()).through(inner, linear()).build(), expand=1)
    entry, frame = layout.boxes["graph_2.input_input_0"], layout.boxes["graph_2"]
    points = routes["linear_1", "graph_2", "stream"].points
    assert points[-2:] == [(frame.x, frame.top), (entry.x, entry.top)]
    assert {x for x, _ in points} == {frame.x}
    last = layout.boxes["graph_2.add_3"]
    assert routes["graph_2", "linear_3", "stream"].points[0] == (last.x, last.bottom)


def test_references_arrive_beside_the_stream():
    flow = FlowBuilder(linear()).input("a", "b").tag("first").through(StateAdd())
    graph = flow.using("a", "b", "first").build()
    layout, _ = laid_out(graph)
    box = layout.boxes["stateadd_4"]
    ends = [r.points[-1] for r in layout.routes if r.link.target == "stateadd_4"]
    assert len(ends) == 4
    assert len({x for x, _ in ends}) == 4
    assert all(box.left < x < box.right and y == box.top for x, y in ends)
    assert (box.x, box.top) in ends
