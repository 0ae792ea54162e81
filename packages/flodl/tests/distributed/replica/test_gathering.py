import pytest
import torch
from torch import nn

from flodl.core.errors import GraphInputError
from flodl.distributed.replica.gathering import Gatherer, Part, check_namespace, snapshot
from flodl.graph import FlowBuilder, LoopBody
from flodl.graph.stepping import NamespaceError

CPU = torch.device("cpu")


def parts_of(*outputs):
    return [Part(rows=rows, output=output, tagged={}, reports={}) for rows, output in outputs]


def joined(*outputs):
    return Gatherer(parts_of(*outputs), CPU).output()


def test_outputs_are_put_together_by_rows_whatever_holds_them():
    first, second = torch.ones(2, 1), torch.zeros(1, 1)
    assert torch.equal(joined((2, first), (1, second)), torch.tensor([[1.0], [1.0], [0.0]]))
    both = joined((2, {"a": (first, "x")}), (1, {"a": (second, "x")}))
    assert both["a"][0].shape == (3, 1)
    assert both["a"][1] == "x"


def test_numbers_become_their_mean_by_rows():
    assert joined((3, torch.tensor(1.0)), (1, torch.tensor(5.0))) == 2.0


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(GraphInputError, match=r"the output has shapes \(2, 3\), \(1, 4\)"):
        joined((2, torch.ones(2, 3)), (1, torch.ones(1, 4)))


class Halving(LoopBody):
    def step(self, x, refs, emit):
        emit.publish("size", x.norm(dim=1))
        return x / 2


def run(graph, value, rows):
    graph(torch.full((rows, 1), value))
    return snapshot({"": graph}, rows, None)


def test_a_trace_holds_of_each_iteration_the_replicas_that_made_it():
    graph = FlowBuilder(nn.Identity()).loop_body(Halving()).for_n(2).build()
    other = FlowBuilder(nn.Identity()).loop_body(Halving()).for_n(3).build()
    parts = [run(graph, 8.0, 2), run(other, 4.0, 1)]
    Gatherer(parts, CPU).fill({"": graph})
    assert [value.tolist() for value in graph.traces("size")] == [
        [8.0, 8.0, 4.0],
        [4.0, 4.0, 2.0],
        [1.0],
    ]
    assert graph.trace_steps("size") == [0, 1, 2]


def test_a_name_of_a_tag_and_of_a_trace_is_refused():
    graph = FlowBuilder(nn.Identity()).tag("size").loop_body(Halving()).for_n(2).tag("end").build()
    with pytest.raises(NamespaceError, match="'size' is a tag of .* and a trace of"):
        Gatherer([run(graph, 8.0, 2), run(graph, 4.0, 1)], CPU).fill({"": graph})


def test_a_traced_loops_own_tag_is_no_clash():
    graph = FlowBuilder(nn.Identity()).loop_body(nn.Tanh()).for_n(2, trace=True).tag("t").build()
    check_namespace(graph, graph.flodl_plan.tags[0].port.node, {"t": None})
