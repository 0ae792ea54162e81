import pytest
from torch import nn

from flodl.graph import FlowBuilder
from flodl.graph.viz import scene as look
from flodl.graph.viz.scene import scene_of
from flodl.nn import SoftmaxRouter, StateAdd


def test_every_kind_of_node_has_its_shape_and_color(picture):
    by_id = {item.id: (item.shape, item.fill) for item in scene_of(picture).items}
    expected = {
        "input_input_0": ("invhouse", look.INPUT),
        "linear_1": ("box", look.MODULE),
        "layernorm_3": ("box", look.NORM),
        "dropout_4": ("box", look.DROPOUT),
        "add_6": ("circle", look.SUM),
        "graph_8": ("box", look.GRAPH),
        "gelu_9": ("ellipse", look.ACTIVATION),
        "merge_12": ("circle", look.SUM),
        "loop_13": ("box3d", look.LOOP),
        "gate_14.router": ("diamond", look.ROUTER),
        "gate_14.experts.0": ("box", look.MODULE),
        "gate_14.exit": ("circle", look.SUM),
        "switch_15.branches.1": ("ellipse", look.ACTIVATION),
        "map_16": ("parallelogram", look.MAP),
        "state_read_memory_18": ("diamond", look.STATE),
        "output.stream": ("house", look.OUTPUT),
    }
    assert {name: by_id[name] for name in expected} == expected


def test_state_goes_from_its_writer_to_its_reader(picture):
    scene = scene_of(picture)
    names = {item.id for item in scene.items}
    assert [(link.source, link.target) for link in scene.links if link.kind == "state"] == [
        ("stateadd_17", "state_read_memory_18")
    ]
    assert all(link.source in names and link.target in names for link in scene.links)


def test_nested_graphs_open_to_a_depth(picture):
    closed, opened = scene_of(picture), scene_of(picture, expand=1)
    assert "graph_8.linear_1" not in {item.id for item in closed.items}
    assert "graph_8.linear_1" in {item.id for item in opened.items}
    assert [group.title for group in opened.groups] == ["inner", "gate #gate", "switch"]
    links = {(link.source, link.target) for link in opened.links}
    assert ("add_6", "graph_8.input_input_0") in links
    assert ("graph_8.linear_1", "gelu_9") in links


def test_what_is_frozen_is_marked():
    graph = FlowBuilder(nn.Linear(2, 2)).tag("a").through(nn.Linear(2, 2)).tag("b").build()
    graph.freeze("a")
    assert {item.id: item.frozen for item in scene_of(graph).items} == {
        "input_input_0": False,
        "linear_1": True,
        "linear_2": False,
        "output.stream": False,
    }


def test_input_that_is_the_output_is_one_shape():
    (item,) = scene_of(FlowBuilder().build()).items
    assert item.shape == "doubleoctagon"


@pytest.mark.parametrize(
    ("count", "text"), [(24, "24"), (1200, "1.2K"), (3_100_000, "3.1M"), (2 * 10**9, "2.0B")]
)
def test_counts_are_short(count, text):
    from flodl.graph.viz.text import count_text

    assert count_text(count) == text


def test_ports_have_names_where_there_is_more_than_the_stream():
    inner = FlowBuilder(nn.Linear(4, 4), input_name="x").tag("y").input("ctx").output("y").build()
    flow = (
        FlowBuilder(nn.Linear(4, 4))
        .tag("a")
        .through(inner, out="y")
        .using(ctx="a")
        .through(StateAdd())
        .using("a", "m")
    )
    scene = scene_of(
        flow.tag("m").gate(SoftmaxRouter(4, 2), [nn.ReLU(), nn.ReLU()]).using("a").build()
    )
    lines = {item.id: [line for line in item.lines if line[0] not in "[#"] for item in scene.items}
    assert lines["graph_2"] == ["in: x, ctx", "out: y"]
    assert lines["stateadd_3"] == ["in: stream, a, m"]
    assert lines["gate_5.router"] == ["in: stream, a"]
    assert lines["gate_5.exit"] == lines["linear_1"] == []
