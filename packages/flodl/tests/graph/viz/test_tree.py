import logging

import torch
from torch import nn

from flodl.graph import FlowBuilder


def model():
    inner = (
        FlowBuilder(nn.Linear(2, 2)).tag("h").through(nn.Tanh()).tag("_t").label("inner").build()
    )
    return FlowBuilder(inner).also(nn.Linear(2, 2)).tag("skip").label("root").build()


def test_tree_lists_graphs_tags_and_what_is_frozen():
    graph = model()
    graph.freeze("inner")
    inner = graph.subgraph("inner").short_hash
    assert graph.tree_summary() == (
        f"root ({graph.short_hash}) 4 tensors, 12 params [2 of 4 frozen]\n"
        "  #skip: add 6 params\n"
        f"  inner ({inner}) 2 tensors, 6 params [frozen]\n"
        "    #h: Linear 6 params [frozen]\n"
        "    #_t: Tanh internal"
    )


def test_parameters_are_counted_by_step():
    graph = model()
    graph.freeze("skip")
    assert graph.param_summary() == (
        "path   tensors  params  share\n"
        "inner        2       6  50.0%\n"
        "skip         2       6  50.0%  [frozen]\n"
        "total        4      12"
    )


def test_verbose_build_logs_the_tree(caplog):
    caplog.set_level(logging.INFO, "flodl")
    graph = FlowBuilder(nn.Linear(2, 2)).tag("a").verbose().build()
    assert graph.tree_summary() in caplog.text
    assert torch.is_tensor(graph(torch.ones(1, 2)))
