import pytest
import torch
from torch import nn

from flodl.core.errors import NoDataError
from flodl.graph import FlowBuilder, GraphPathError

X = torch.ones(2, 3)


def graph():
    inner = FlowBuilder(nn.Linear(3, 3)).tag("deep").build()
    flow = FlowBuilder(inner).tag("first").split([nn.Tanh(), nn.Linear(3, 3)]).tag_group("g")
    return flow.merge().tag("merged").build()


def test_profile_times_every_node_and_level():
    g = graph()
    plain = g.code
    with pytest.raises(NoDataError, match="no call was profiled yet"):
        g.profile()
    g.enable_profiling()
    assert g.profiling
    g(X)
    profile = g.profile()
    assert [node.id for node in profile.nodes] == ["graph_1", "tanh_2", "linear_3", "merge_4"]
    assert [node.tag for node in profile.nodes] == ["first", "g_0", "g_1", "merged"]
    assert all(node.seconds > 0 and node.seconds == node.host_seconds for node in profile.nodes)
    assert [level.num_nodes for level in profile.levels] == [1, 2, 1]
    assert profile.levels[0].parallelism == 1.0
    assert 0 < profile.levels[1].parallelism <= 1.0
    assert profile.total >= sum(node.seconds for node in profile.nodes)
    assert "linear_3 #g_1" in str(profile)
    assert [node.id for node in g.profile(deep=True).nodes[0].children] == ["linear_1"]
    g.disable_profiling()
    assert g.code == plain
    g(X)
    assert g.profile() == profile


def test_profiling_run_restores_what_was():
    g = graph()
    with g.profiling_run() as profiled:
        profiled(X)
        assert g.timing("first") > 0
    assert not g.profiling


def test_times_have_trends():
    g = graph()
    assert g.timing("first") == 0.0
    g.enable_profiling()
    for _ in range(2):
        g(X)
        g.collect_timings("first", "g")
    g.flush_timings()
    assert len(g.timing_trend("first")) == 1
    assert len(g.timing_trends(["g_0", "g_1"])) == 2
    assert g.timing_trend("merged").values == []
    g(X)
    g.end_step()
    g.end_epoch()
    assert len(g.timing_trend("merged")) == 1
    g.reset_timing_trend("first")
    assert g.timing_trend("first").values == []
    with pytest.raises(GraphPathError, match=r"timing\('frist'\): no such tag"):
        g.timing("frist")


def test_profiling_changes_the_version_not_the_result():
    g = graph()
    expected, version = g(X), g.version
    g.enable_profiling()
    assert torch.equal(g(X), expected)
    assert g.version > version


def test_nodes_appear_in_the_profiler_of_torch():
    g = graph()
    g.enable_profiling()
    with torch.profiler.profile() as recorded:
        g(X)
    names = {event.name for event in recorded.events()}
    assert {"flodl::graph/linear_3", "flodl::first/linear_1"} <= names


def test_failing_node_is_still_named():
    g = graph()
    g.enable_profiling()
    with pytest.raises(RuntimeError) as caught:
        g(torch.ones(2, 4))
    assert caught.value.flodl_node == "graph_1.linear_1"
