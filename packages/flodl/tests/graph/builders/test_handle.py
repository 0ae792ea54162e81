import inspect

import pytest
from torch import nn

from flodl.graph import FlowBuilder, FlowError


def test_second_use_names_the_call_and_the_line_that_consumed_the_builder():
    builder = FlowBuilder(nn.Identity())
    builder.through(nn.Identity())
    line = inspect.currentframe().f_lineno - 1
    with pytest.raises(FlowError) as caught:
        builder.build()
    message = str(caught.value)
    assert (
        f"build: this builder was already consumed by .through(…) at {__file__}:{line}" in message
    )
    assert "keep the result" in message


@pytest.mark.parametrize(
    "use",
    [
        lambda b: b.tag("a"),
        lambda b: b.copy(),
        lambda b: b.label("a"),
        lambda b: b.also(nn.Identity()),
        lambda b: b.input("a"),
        lambda b: b.build(),
    ],
    ids=["tag", "copy", "label", "also", "input", "build"],
)
def test_every_method_refuses_a_used_builder(use):
    builder = FlowBuilder(nn.Identity())
    builder.build()
    with pytest.raises(FlowError, match=r"consumed by \.build"):
        use(builder)


def test_copy_does_not_use_the_builder_up():
    builder = FlowBuilder(nn.Identity())
    builder.copy()
    builder.build()


def test_methods_keep_their_signatures_and_documentation():
    assert "key" in inspect.signature(FlowBuilder.through).parameters
    assert "residual" in FlowBuilder.also.__doc__


def test_loop_and_map_that_are_not_finished_say_what_ends_them():
    loop, rows = FlowBuilder().loop_body(nn.Identity()), FlowBuilder().map(nn.Identity())
    with pytest.raises(FlowError, match=r"build: loop_body\(…\) is not finished") as caught:
        loop.build()
    assert caught.value.hint == (
        "first call .for_n(n), .while_cond(cond, max_iter) or .until_cond(cond, max_iter)"
    )
    with pytest.raises(FlowError, match=r"through: map\(…\) is not finished") as caught:
        rows.through(nn.Identity())
    assert caught.value.hint == "first call .each(), .over(tag) or .slices(n)"
    assert not hasattr(loop, "build"), "it is an AttributeError too"
    assert loop.for_n(1).build() is not None, "asking did not use it up"
