import pytest
import torch
from torch import nn

from flodl.core.errors import FlowError
from flodl.graph.builders.modules import as_module, call_style, step_name
from flodl.graph.ir import CallStyle


class OptsOut(nn.Module):
    def forward(self, x):
        return x

    def forward_named(self, x, refs):
        return x

    def as_named_input(self):
        return None


def test_functions_become_modules():
    assert as_module(torch.relu, "through").flodl_name == "relu"


def test_step_names_are_identifiers():
    named = nn.Identity()
    named.flodl_name = "2 fast-Ünicode"
    assert step_name(named) == "node2fastnicode"
    assert step_name(nn.BatchNorm1d(1)) == "batchnorm1d"


def test_refs_parameter_wins_over_keywords():
    class Both(nn.Module):
        def forward(self, x, refs=None, ctx=None):
            return x

    assert call_style(Both(), ["ctx"], "using", "n") is CallStyle.REFS


def test_a_module_may_opt_out_of_named_input():
    with pytest.raises(FlowError, match="takes no reference 'ctx'"):
        call_style(OptsOut(), ["ctx"], "using", "n")
