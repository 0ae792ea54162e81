import pytest
import torch
from torch import nn

from flodl.core.errors import NoDataError
from flodl.graph import FlowBuilder
from flodl.nn import StateAdd

X = torch.ones(2, 3)


def trained():
    inner = FlowBuilder(nn.Linear(3, 3)).tag("h").label("inner").build()
    flow = FlowBuilder(inner).split([torch.mean, torch.amax]).tag_group("head").merge()
    graph = flow.tag("out").build()
    graph.enable_profiling()
    for value in (2.0, 1.0):
        graph(X)
        graph.collect("head")
        graph.record_scalar("loss", value)
        graph.record_at("inner.loss", value)
        graph.end_step()
        graph.end_epoch()
    return graph


def test_curves_tables_and_logs_are_written(tmp_path):
    graph = trained()
    graph.plot_html(tmp_path / "a.html")
    assert '"inner.loss"' in (tmp_path / "a.html").read_text()
    graph.plot_html(tmp_path / "b.html", ["head"])
    assert '["head_0", "head_1"]' in (tmp_path / "b.html").read_text()
    graph.plot_timings_html(tmp_path / "c.html")
    assert '"out"' in (tmp_path / "c.html").read_text()
    graph.export_trends(tmp_path / "a.csv", ["loss", "inner.loss"])
    assert (tmp_path / "a.csv").read_text() == "epoch,loss,inner.loss\n1,2.0,2.0\n2,1.0,1.0\n"
    graph.export_timing_trends(tmp_path / "b.csv", ["out"])
    assert (tmp_path / "b.csv").read_text().startswith("epoch,out\n1,")
    graph.write_log(tmp_path / "a.log", total_epochs=5, names=["loss"])
    first, second = (tmp_path / "a.log").read_text().splitlines()
    assert first.startswith("epoch   1  loss=2.0000  [")
    assert "ETA" in second


@pytest.mark.parametrize(
    "method", "plot_html plot_timings_html export_trends export_timing_trends write_log".split()
)
def test_nothing_to_show_is_an_error_and_writes_nothing(method, tmp_path):
    graph = FlowBuilder(nn.Linear(3, 3)).build()
    with pytest.raises(ValueError, match="collect or record values, then call flush"):
        getattr(graph, method)(tmp_path / "a")
    with pytest.raises(NoDataError, match=f"{method}: there is nothing to show of loss"):
        getattr(graph, method)(tmp_path / "a", names=["loss"])
    assert not (tmp_path / "a").exists()


def test_repr_is_one_line_then_the_modules():
    graph = FlowBuilder(nn.Linear(3, 3)).tag("a").input("ctx").through(StateAdd()).using("ctx")
    graph = graph.label("net").build()
    line, *modules = repr(graph).splitlines()
    assert line == (
        f"Graph(label='net', hash={graph.short_hash}, nodes=4, params=12, frozen=0, "
        "inputs=(input, ctx), tags=2, static)"
    )
    assert modules[0] == "Graph("
    assert "(a): Linear" in modules[1]


def test_notebooks_show_graphs_and_unfinished_flows():
    bundle = trained()._repr_mimebundle_()
    assert "<svg" in bundle["text/html"]
    assert "<table>" in bundle["text/html"]
    flow = FlowBuilder(nn.Linear(3, 3)).split([nn.Tanh(), nn.GELU()])
    assert "<svg" in flow._repr_mimebundle_()["image/svg+xml"]
    assert flow.merge().build()(X).shape == (2, 3)
    pending = FlowBuilder(StateAdd()).using("later")
    assert pending._repr_mimebundle_() == {
        "text/plain": "FlowBuilder with 3 steps; references are still open"
    }
