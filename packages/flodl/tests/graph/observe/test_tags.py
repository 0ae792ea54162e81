import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder, GraphPathError

X = torch.ones(2, 3)


def graph():
    return FlowBuilder(torch.neg).tag("alpha").through(torch.exp).tag("beta").build()


def test_tags_hold_the_values_of_the_last_call():
    g = graph()
    assert g.tagged("alpha") is None
    g(X)
    g(2 * X)
    assert torch.equal(g.tagged("alpha"), -2 * X)
    assert g.tag_names == ("alpha", "beta")


def test_unknown_tag_is_a_key_error_with_suggestions():
    with pytest.raises(
        KeyError, match=r"tagged\('alpa'\): no tag 'alpa'\nhint: did you mean 'alpha'"
    ):
        graph().tagged("alpa")
    with pytest.raises(GraphPathError, match=r"there are none"):
        FlowBuilder(nn.Identity()).build().tagged("x")


def test_what_is_kept_can_be_chosen():
    g = graph()
    g.set_retained(["beta"])
    g(X)
    assert g.tagged("alpha") is None
    assert torch.equal(g.tagged("beta"), torch.exp(-X))
    g.set_retained("none")
    g(X)
    assert g.tagged("beta") is None
    g.set_retained("all")
    g(X)
    assert g.tagged("alpha") is not None
    with pytest.raises(GraphPathError, match="no tag 'gamma'"):
        g.set_retained(["gamma"])


def test_choosing_what_is_kept_changes_the_version():
    g = graph()
    version = g.version
    g.set_retained("none")
    assert g.version > version


def test_failed_call_does_not_keep_old_values():
    g = FlowBuilder(nn.Linear(3, 1)).tag("y").build()
    g(X)
    with pytest.raises(RuntimeError):
        g(torch.ones(2, 4))
    assert g.tagged("y") is None
