import pytest
from torch import nn

from flodl.graph import FlowBuilder, FlowError, GraphPathError
from flodl.graph.paths import PathKind, children_of, find


def scan(label="scan"):
    flow = FlowBuilder(nn.Linear(2, 2)).tag("hidden").through(nn.Tanh()).tag("_secret")
    return flow.label(label).build()


def three_levels():
    encoder = FlowBuilder(scan()).through(scan("read")).label("encoder").build()
    return FlowBuilder(encoder).through(nn.Linear(2, 2)).tag("classifier").build()


def test_paths_lead_three_levels_deep():
    root = three_levels()
    assert find(root, "encoder").kind is PathKind.SUBGRAPH
    place = find(root, "encoder.scan.hidden")
    assert (place.kind, place.graph.label, place.name) == (PathKind.TAG, "scan", "hidden")
    assert find(root, "classifier").kind is PathKind.TAG


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("encodr", r"no subgraph, tag or trace 'encodr'\nhint: did you mean 'encoder'"),
        ("encodr.scan", r"path 'encodr.scan': no subgraph 'encodr'\n.*'encoder'"),
        ("encoder.scam.hidden", r"no subgraph 'scam' below 'encoder'\n.*'scan'"),
        ("encoder.scan.hiden", r"trace 'hiden' below 'encoder.scan'\n.*'hidden'"),
        ("encoder.hidden", r"'hidden' below 'encoder'"),
        ("hidden", r"no subgraph, tag or trace 'hidden'"),
        ("classifier.x", r"no subgraph 'classifier'"),
        ("encoder.scan.hidden.x", r"no subgraph 'hidden' below 'encoder.scan'"),
        ("", r"no subgraph, tag or trace ''"),
    ],
)
def test_the_segment_that_fails_is_named_with_close_matches(path, message):
    with pytest.raises(GraphPathError, match=message):
        find(three_levels(), path)


def test_internal_tags_are_seen_in_their_own_graph_only():
    root = three_levels()
    assert find(scan(), "_secret").kind is PathKind.TAG
    with pytest.raises(GraphPathError, match=r"'_secret' is an internal tag"):
        find(root, "encoder.scan._secret")
    flow = FlowBuilder(nn.Tanh()).tag("_shown").internal("_shown", False)
    shown = FlowBuilder(flow.label("a").build()).build()
    assert find(shown, "a._shown").kind is PathKind.TAG


def test_children_are_found_in_every_construct_and_in_wrappers():
    class Wrapper(nn.Module):
        def __init__(self, graph):
            super().__init__()
            self.inside = nn.Sequential(nn.Identity(), graph)

        def forward(self, x):
            return self.inside(x)

    unlabeled = FlowBuilder(scan("deep")).build()
    flow = FlowBuilder(Wrapper(scan("wrapped"))).also(scan("beside")).through(unlabeled)
    flow = flow.loop_body(scan("body")).for_n(2).map(scan("rows")).each()
    flow = flow.split([scan("left"), scan("right")]).merge()
    shared = scan("expert")
    flow = flow.gate(lambda x: x, [shared, shared]).switch(lambda x: 0, [scan("b0"), nn.Identity()])
    names = "wrapped beside deep body rows left right expert b0".split()
    assert list(children_of(flow.build())) == names


def test_labels_must_be_unique_at_their_level():
    with pytest.raises(FlowError, match=r"two graphs are labeled 'scan', at graph_1 and graph_2"):
        FlowBuilder(scan()).through(scan()).build()
    shared = scan()
    FlowBuilder(shared).through(shared).build()


def test_label_must_not_be_a_tag_of_another_step():
    with pytest.raises(FlowError, match=r"'scan' is the label of the graph at graph_1 and a tag"):
        FlowBuilder(scan()).through(nn.Linear(2, 2)).tag("scan").build()
    graph = FlowBuilder(scan()).tag("scan").build()
    assert find(graph, "scan").kind is PathKind.SUBGRAPH
    FlowBuilder().also(scan()).tag("scan").build()
