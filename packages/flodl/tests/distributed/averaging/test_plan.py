import pytest

from flodl.core.errors import ConfigError
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.config import ElCheConfig


@pytest.mark.parametrize(
    ("elche", "wanted"),
    [
        (ElCheConfig.nccl_sync(), {"fabric": "nccl", "alpha": None, "is_background": False}),
        (ElCheConfig.nccl_cadence(collective="gloo"), {"fabric": "gloo"}),
        (ElCheConfig.cpu_cadence(bf16_wire=True), {"wire": "bf16", "error_feedback": True}),
        (ElCheConfig.cpu_async(), {"fabric": "gloo", "alpha": 0.5, "is_background": True}),
        (
            ElCheConfig.cpu_async(easgd_alpha=0.6, center="elastic"),
            {"alpha": 0.6, "center": "elastic"},
        ),
    ],
    ids=["nccl", "gloo", "bf16", "async", "elastic"],
)
def test_a_mode_says_how_to_average(elche, wanted):
    config = PlaneConfig.of(elche)
    assert {name: getattr(config, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"alpha": 0.0}, "alpha=0.0"),
        ({"alpha": 1.5}, "alpha=1.5"),
        ({"center": "elastic"}, "without alpha"),
        ({"wire": "bf16", "fabric": "nccl"}, "only the CPU plane"),
        ({"wire": "fp16"}, "wire='fp16'"),
        ({"inner_state": "drop"}, "inner_state='drop'"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        PlaneConfig(**options)
