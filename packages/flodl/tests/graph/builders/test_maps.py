import pytest
from torch import nn

from flodl.graph import FlowBuilder, FlowError


@pytest.mark.parametrize("n", [0, -2, 1.0, True])
def test_number_of_slices_is_one_or_more(n):
    with pytest.raises(FlowError, match="number of slices must be a whole number, 1 or more"):
        FlowBuilder().map(nn.Identity()).slices(n)


def test_batched_handle_is_consumed_like_any_other():
    mapped = FlowBuilder().map(nn.Identity())
    mapped.batched()
    with pytest.raises(FlowError, match=r"each: .*consumed by \.batched\(…\)"):
        mapped.each()


def test_map_needs_a_single_stream():
    with pytest.raises(FlowError, match="map needs a single stream, 2 are open"):
        FlowBuilder().split([nn.Identity(), nn.Identity()]).map(nn.Identity())


def test_key_names_the_namespace():
    graph = FlowBuilder().map(nn.Linear(2, 2), key="rows").each().build()
    assert sorted(graph.state_dict()) == ["rows.body.bias", "rows.body.weight"]
