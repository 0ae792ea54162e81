from itertools import combinations

import pytest
from torch import nn

from flodl.graph import FlowBuilder
from flodl.graph.viz.boxes import GAP_Y, Box
from flodl.graph.viz.labels import crossings, label_places
from flodl.graph.viz.layout import lay_out
from flodl.graph.viz.scene import scene_of
from flodl.nn import StateAdd


def test_labels_stand_apart_and_on_nothing():
    names = ("attention_mask", "token_type_ids", "position_ids")
    flow = FlowBuilder(nn.Linear(4, 4)).input(*names).through(StateAdd()).using(*names)
    scene = scene_of(flow.through(StateAdd()).using(*names).build())
    layout = lay_out(scene)
    places = label_places(scene, layout)
    assert sorted(route.link.label for route, _ in places) == sorted(2 * names)
    boxes = [(x, y, len(route.link.label) * 5.0, 10.0) for route, (x, y) in places]
    boxes += [(b.x, b.y, b.width - 1, b.height - 1) for b in layout.boxes.values()]
    for (x1, y1, w1, h1), (x2, y2, w2, h2) in combinations(boxes, 2):
        assert abs(x1 - x2) >= (w1 + w2) / 2 or abs(y1 - y2) >= (h1 + h2) / 2


def test_labels_have_room_and_are_not_crossed_where_that_can_be():
    names = ("context", "memory", "extra")
    flow = FlowBuilder(nn.Linear(4, 4)).input(*names).through(StateAdd()).using(*names)
    scene = scene_of(flow.build())
    layout = lay_out(scene)
    (reader,) = (box for name, box in layout.boxes.items() if name.startswith("stateadd"))
    above = max(b.y + b.height / 2 for b in layout.boxes.values() if b.y < reader.top)
    assert reader.top - above == pytest.approx(GAP_Y + 2 * 14), "room for two more labels"
    for route, (x, y) in label_places(scene, layout):
        box = Box(x, y, len(route.link.label) * 5.8, 12.0)
        assert crossings(box, [each for each in layout.routes if each is not route]) == 0
