import subprocess
import sys

import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder
from flodl.nn import Reshape, StateAdd

GOLDEN = "af16b87d8ced260ee4b5c608b1d3b50b4e168714dacbbe52903e179a1d9979a5"


def linear(inputs=4, outputs=4, **options):
    return nn.Linear(inputs, outputs, **options)


def base(**changes):
    """One graph with a bit of everything; each change below touches one thing."""
    options = {
        "outputs": 4,
        "op": "add",
        "tag": "encoded",
        "label": None,
        "dtype": torch.float32,
        "key": None,
        "activation": nn.GELU,
        "shape": (-1, 4),
        "aux": "ctx",
        "refs": ("memory", "ctx"),
        "bias": True,
    } | changes
    builder = FlowBuilder(linear(bias=options["bias"]), key=options["key"]).tag(options["tag"])
    builder = builder.input(options["aux"]).through(options["activation"]())
    builder = builder.split([linear(4, options["outputs"]) for _ in range(2)])
    builder = builder.merge(options["op"]).through(Reshape(*options["shape"]))
    builder = builder.through(StateAdd()).using(*options["refs"]).tag("memory")
    if options["label"]:
        builder = builder.label(options["label"])
    return builder.build().to(options["dtype"])


def test_golden_value_is_the_same_everywhere():
    assert base().structural_hash == GOLDEN
    assert base().short_hash == GOLDEN[:8]


@pytest.mark.parametrize(
    "change",
    [{"label": "net"}, {"dtype": torch.float64}, {"key": "somewhere.else"}],
    ids=lambda change: next(iter(change)),
)
def test_what_does_not_change_the_function_does_not_count(change):
    assert base(**change).structural_hash == GOLDEN


def test_values_and_device_do_not_count():
    graph = base()
    with torch.no_grad():
        for parameter in graph.parameters():
            parameter.zero_()
    assert graph.to("meta").structural_hash == GOLDEN


@pytest.mark.parametrize(
    "change",
    [
        {"outputs": 8},
        {"op": "mean"},
        {"tag": "other"},
        {"activation": nn.ReLU},
        {"shape": (4, -1)},
        {"aux": "context", "refs": ("memory", "context")},
        {"refs": ("memory",)},
        {"bias": False},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_changes_the_function_counts(change):
    assert base(**change).structural_hash != GOLDEN


def test_shared_weights_count():
    shared = linear()
    one = FlowBuilder(shared).through(shared).build()
    two = FlowBuilder(linear()).through(linear()).build()
    assert one.structural_hash != two.structural_hash


def test_nested_graphs_count_with_their_own_hash():
    def nest(activation):
        return FlowBuilder(nn.Sequential(FlowBuilder(activation).build())).build()

    assert nest(nn.GELU()).structural_hash == nest(nn.GELU()).structural_hash
    assert nest(nn.GELU()).structural_hash != nest(nn.ReLU()).structural_hash


def test_start_of_state_counts():
    def graph(init):
        return FlowBuilder(StateAdd()).using("m").tag("m").state("m", init).build().structural_hash

    assert len({graph((-1, 4)), graph((-1, 5)), graph(torch.zeros(1, 4)), graph(torch.relu)}) == 4


def test_another_process_with_other_hash_seed_agrees():
    code = (
        "from torch import nn; from flodl.graph import FlowBuilder;"
        "print(FlowBuilder(nn.Linear(2, 2)).tag('a').also(nn.Linear(2, 2)).build().structural_hash)"
    )
    here = FlowBuilder(nn.Linear(2, 2)).tag("a").also(nn.Linear(2, 2)).build().structural_hash
    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert there == here


def test_tying_parameters_is_no_structure_within_a_module_either():
    tied = nn.LSTM(4, 4)
    tied.weight_hh_l0 = tied.weight_ih_l0
    hashes = {
        FlowBuilder().through(cell, out=0).build().structural_hash for cell in (tied, nn.LSTM(4, 4))
    }
    assert len(hashes) == 1
