import copy
import json
import threading

import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder, GraphPathError, NodeError

X = torch.tensor([[1.0, 3.0]])


def child(label="scan"):
    return FlowBuilder(torch.sum).tag("total").label(label).build()


def graph():
    flow = FlowBuilder().tag("wide").split([torch.mean, torch.amax]).tag_group("head").merge()
    return flow.tag("sum").build()


def parent():
    encoder = FlowBuilder(child()).label("encoder").build()
    return FlowBuilder(encoder).tag("out").build()


def test_collected_values_are_averaged_by_flush():
    g = graph()
    for factor in (1, 2, 6):
        g(factor * X)
        g.collect("sum")
    assert g.collected("sum") == [5.0, 10.0, 30.0]
    g.flush()
    assert g.trend("sum").values == [15.0]
    assert g.collected("sum") == []
    g.flush()
    assert g.trend("sum").values == [15.0]
    assert g.flush_count == 1


def test_groups_stand_for_their_tags_everywhere():
    g = graph()
    g(X)
    g.collect("head")
    g.flush("head")
    assert g.latest_metrics() == {"head_0": 2.0, "head_1": 3.0}
    assert g.trends("head").slopes() == [0.0, 0.0]
    assert g.tag_group("head") == ("head_0", "head_1")
    with pytest.raises(GraphPathError, match="no such group"):
        g.tag_group("hed")


@pytest.mark.parametrize(
    ("reduce", "value"), [("mean", 2), ("sum", 4), ("max", 3), ("min", 1), ("norm", 10**0.5)]
)
def test_wide_values_are_reduced(reduce, value):
    g = graph()
    g(X)
    g.collect_with("wide", "sum", reduce=reduce)
    g.flush()
    assert g.latest_metrics() == {"wide": pytest.approx(value), "sum": 5.0}


def test_what_cannot_be_collected_says_why():
    g = graph()
    with pytest.raises(NodeError, match=r"collect\('sum'\): it was not computed yet"):
        g.collect("sum")
    g(X)
    with pytest.raises(NodeError, match=r"shape \[1, 2\] is not one element\n.*collect_with"):
        g.collect("wide")
    with pytest.raises(GraphPathError, match=r"no tag 'smu'\nhint: did you mean 'sum'"):
        g.collect("smu")
    with pytest.raises(GraphPathError, match=r"hint: collect_at\(\) takes paths"):
        g.collect("a.b")
    with pytest.raises(
        GraphPathError, match=r"\['sum'\] is no name\nhint: .*arguments of their own"
    ):
        g.collect(["sum"])
    with pytest.raises(NodeError, match=r"reduce='median'\): there are mean, sum"):
        g.collect_with("wide", reduce="median")
    e = FlowBuilder().tag("x").build()
    e(torch.empty(0))
    with pytest.raises(NodeError, match="the tensor is empty"):
        e.collect_with("x")


def test_recorded_values_have_weights():
    g = graph()
    g.record_scalar("loss", 1.0, weight=3)
    g.record_scalar("loss", torch.tensor([5.0]), weight=1)
    g.record("accuracy", [0.5, 1.0])
    g.record("accuracy", torch.tensor(0.0))
    g.flush()
    assert g.latest_metrics() == {"loss": 2.0, "accuracy": 0.5}
    with pytest.raises(NodeError, match=r"record_scalar\('a'\): shape \[2\]"):
        g.record_scalar("a", torch.ones(2))
    with pytest.raises(NodeError, match="str is neither a number nor a tensor"):
        g.record_scalar("a", "1")


def test_recording_keeps_no_history_and_copies():
    g, value = graph(), torch.ones((), requires_grad=True)
    g.record_scalar("a", value)
    with torch.no_grad():
        value.fill_(9)
    assert not g.flodl_history.pending("a")[0].requires_grad
    assert g.collected("a") == [1.0]


def test_metrics_cross_boundaries():
    root = parent()
    root(X)
    root.collect_at(["encoder.scan.total", "out"])
    root.record_at("encoder.scan.loss", 0.5)
    root.record_scalar("own", 1.0)
    with pytest.raises(GraphPathError, match=r"'encoder' is a child graph\n.*record_at"):
        root.record_scalar("encoder.loss", 1.0)
    root.record_scalar("train.loss", 2.0)
    root.flush()
    metrics = root.latest_metrics()
    assert list(metrics) == ["out", "own", "train.loss", "encoder.scan.total", "encoder.scan.loss"]
    assert root.latest_metrics_local() == {"out": 4.0, "own": 1.0, "train.loss": 2.0}
    assert root.trend_at("encoder.scan.loss").latest == 0.5
    assert root.subgraph("encoder.scan").trend("loss").latest == 0.5
    with pytest.raises(GraphPathError, match=r"no subgraph.*'encodr'"):
        root.record_at("encodr.loss", 1.0)
    with pytest.raises(GraphPathError, match=r"'out' is a tag, not a subgraph"):
        root.record_at("out.loss", 1.0)
    with pytest.raises(GraphPathError, match=r"no tag 'loss'"):
        root.collect_at("encoder.scan.loss")


def test_flush_of_names_leaves_the_rest():
    root = parent()
    root.record_scalar("a", 1.0)
    root.record_at("encoder.a", 2.0)
    root.record_at("encoder.b", 3.0)
    root.flush("encoder.b")
    assert root.latest_metrics() == {"encoder.b": 3.0}
    root.flush_local()
    assert root.latest_metrics() == {"a": 1.0, "encoder.b": 3.0}
    root.flush_local("unknown")
    assert root.flush_count == 1
    root.end_epoch()
    assert root.epoch_count == 1
    assert root.trend_at("encoder.a").values == [2.0]


def test_trends_can_be_forgotten():
    root = parent()
    root.record_at("encoder.a", 2.0)
    root.record_scalar("b", 2.0)
    root.flush()
    root.reset_trend("encoder.a")
    assert root.latest_metrics() == {"b": 2.0}
    assert len(root.trend("never")) == 0


def test_history_survives_a_resume_and_a_copy():
    root, fresh = parent(), parent()
    for value in (3.0, 2.0):
        root.record_scalar("loss", value)
        root.record_at("encoder.scan.loss", value)
        root.flush()
    fresh.load_history(json.loads(json.dumps(root.history())))
    assert fresh.trend("loss").values == [3.0, 2.0]
    assert fresh.trend_at("encoder.scan.loss").values == [3.0, 2.0]
    assert fresh.flush_count == 2
    assert copy.deepcopy(root).trend("loss").values == [3.0, 2.0]
    history = root.history()
    history["children"]["other"] = history["children"].pop("encoder")
    with pytest.raises(GraphPathError, match="load_history: no child 'other'"):
        fresh.load_history(history)


def test_eta_extends_the_pace_so_far(monkeypatch):
    g, now = graph(), [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    assert g.eta(10) == 0.0
    g(X)
    now[0] = 106.0
    assert g.eta(10) == 0.0
    g.record_scalar("loss", 1.0)
    g.flush()
    assert g.eta(10) == 54.0
    assert g.eta(1) == 0.0


def test_metrics_can_be_read_while_another_thread_trains():
    g, stop, seen = graph(), threading.Event(), []

    def read():
        while not stop.is_set():
            seen.append(g.latest_metrics())
            g.trend("loss").slope()
            g.history()

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(300):
        g.record_scalar("loss", float(step))
        g.flush()
    stop.set()
    reader.join()
    assert g.trend("loss").values == [float(step) for step in range(300)]


@pytest.mark.cuda
def test_collecting_never_waits_for_the_device():
    g = FlowBuilder(nn.Linear(2, 1)).tag("y").build().cuda()
    x = X.cuda()
    g(x)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            y = g(x)
            g.collect("y")
            g.collect_with("y", reduce="norm")
            g.record_scalar("loss", y.sum())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    g.flush()
    assert g.trend("loss").latest == pytest.approx(y.item())


def observing():
    flow = FlowBuilder(nn.Identity()).tag("x").input("ctx").through(torch.sum).tag("total")
    graph = flow.build()
    graph.observe("x", reduce="max")
    graph.observe("total", "ctx")
    return graph


def test_observed_tags_are_summed_up_by_the_calls_themselves():
    graph = observing()
    version = graph.version
    for value in (1.0, 3.0):
        graph(torch.tensor([value, 0.0]), torch.tensor(value) if value > 1 else None)
    assert graph.version == version
    graph.flush("x")
    assert graph.trend("x").values == [2.0]
    graph.flush()
    graph.flush()
    assert graph.latest_metrics() == {"x": 2.0, "total": 2.0, "ctx": 3.0}
    assert len(graph.trend("total")) == 1
    graph.observe()
    assert graph.version > version
    graph(torch.ones(2), None)
    graph.flush()
    assert len(graph.trend("x")) == 1
    assert "flodl_sums" not in graph.code


def test_sums_stay_in_place_and_belong_to_one_graph():
    graph = observing()
    graph.set_retained("none")
    graph(torch.ones(2), None)
    graph.pure()(torch.ones(2), None, state={})
    graph.summary((torch.ones(2), None))
    copied = copy.deepcopy(graph)
    copied(torch.ones(2), None)
    place = graph.flodl_sums._pairs["x"].data_ptr()
    graph.flush()
    graph(torch.ones(2), None)
    assert graph.flodl_sums._pairs["x"].data_ptr() == place
    assert graph.trend("total").values == [2.0]
    copied.flush()
    assert copied.trend("total").values == [2.0]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_compiled_calls_are_observed_too():
    torch._dynamo.reset()
    graph = observing()
    compiled = torch.compile(graph, fullgraph=True, backend="aot_eager")
    for value in (1.0, 2.0, 6.0):
        compiled(torch.tensor([value, 0.0], requires_grad=True), torch.ones(()))
    graph.flush()
    assert graph.trend("x").values == [3.0]


def test_what_cannot_be_observed_is_said():
    graph = observing()
    with pytest.raises(GraphPathError, match="no tag 'totl'"):
        graph.observe("totl")
    with pytest.raises(NodeError, match="reduce='median'"):
        graph.observe("x", reduce="median")
    with pytest.raises(NodeError, match=r"observe\('x'\): an empty tensor"):
        graph(torch.ones(0), None)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_weight_that_is_none_is_refused(weight):
    graph = FlowBuilder(nn.Identity()).build()
    with pytest.raises(NodeError, match=rf"weight={weight}\): a weight is a number, 0 or more"):
        graph.record_scalar("loss", 1.0, weight=weight)
    graph.record_scalar("loss", 1.0, weight=0.0)
    graph.record_scalar("loss", 3.0, weight=2.0)
    graph.flush()
    assert graph.latest_metrics() == {"loss": 3.0}
