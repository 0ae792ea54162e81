from itertools import pairwise

import torch
from torch import nn

from flodl.graph import FlowBuilder
from flodl.graph.viz.layout import lay_out
from flodl.graph.viz.scene import scene_of
from flodl.nn import ArgmaxSelector, SoftmaxRouter, StateAdd


def linear():
    return nn.Linear(4, 4)


def test_state_goes_around_everything():
    flow = FlowBuilder(linear()).input("ctx").tag("first")
    flow = flow.gate(SoftmaxRouter(4, 3), [linear(), linear(), linear()])
    flow = flow.switch(ArgmaxSelector(4, 2), [linear(), linear()]).through(StateAdd())
    flow = flow.using("ctx", "memory").split([linear(), linear(), linear()]).merge("add")
    graph = flow.tag("memory").through(StateAdd()).using("other").through(torch.tanh).tag("other")
    scene = scene_of(graph.build())
    layout = lay_out(scene)
    assert [route.link.label for route in layout.loops] == ["memory", "other"]
    for route in layout.loops:
        source, target = layout.boxes[route.link.source], layout.boxes[route.link.target]
        (x1, y1), (x2, y2) = route.points[0], route.points[-1]
        assert abs(x1 - source.x) <= source.width / 2 + 0.01
        assert abs(y1 - source.y) <= source.height / 2 + 0.01
        assert abs(x2 - target.x) <= target.width / 2 + 0.01
        assert abs(y2 - target.y) <= target.height / 2 + 0.01
        assert all(0 <= x <= layout.width for x, _ in route.points)
        for start, end in pairwise(route.points):
            assert start[0] == end[0] or start[1] == end[1]
            assert not any(box.meets(start, end) for box in layout.boxes.values())


def test_loops_on_one_side_have_trunks_of_their_own():
    flow = FlowBuilder(linear())
    for name in ("a", "b", "c"):
        flow = flow.through(StateAdd()).using(name).through(torch.tanh).tag(name)
    layout = lay_out(scene_of(flow.build()))
    trunks = [
        max((x for x, _ in route.points), key=lambda x: abs(x - 200)) for route in layout.loops
    ]
    assert len(set(trunks)) == 3
