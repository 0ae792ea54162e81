import pytest

from ddp_bench.errors import UsageError
from ddp_bench.speed.arms import ARMS, choose


def names(arms):
    return [arm.name for arm in arms]


def test_processor_has_the_seven_arms_of_the_method():
    assert names(choose("cpu")) == [
        "torch-eager",
        "torch-fused",
        "torch-compile",
        "lightning",
        "flodl-graph",
        "flodl-trainer",
        "flodl-compiled",
    ]


def test_gpu_has_all_arms_but_those_of_the_processor_and_those_to_be_asked_for():
    trials = {"flodl-rewritten", "flodl-rewritten-compiled"}
    others = {"flodl-compiled", "torch-compile-max"} | trials
    assert set(names(choose("cuda"))) == set(names(ARMS)) - others


def test_arms_come_in_the_order_of_the_suite():
    assert names(choose("cpu", ["flodl-graph", "torch-eager"])) == ["torch-eager", "flodl-graph"]


def test_further_arms_come_beside_the_default_ones():
    assert "torch-compile-max" in names(choose("cuda", also=["torch-compile-max"]))
    assert "torch-eager" in names(choose("cuda", also=["torch-compile-max"]))


@pytest.mark.parametrize(
    ("device", "name", "says"),
    [
        ("cpu", "torch-quick", "there are torch-eager"),
        ("cpu", "flodl-captured", "runs on a GPU only"),
        ("cuda", "flodl-compiled", "runs on the CPU only"),
    ],
)
def test_arm_that_cannot_be_is_refused_with_what_can(device, name, says):
    with pytest.raises(UsageError, match=says):
        choose(device, [name])
