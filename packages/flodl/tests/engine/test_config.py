import dataclasses

import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.engine.config import CaptureConfig, StepConfig, StepOptions, merged
from flodl.nn import GradScaler


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"capture": "always"}, 'capture=\'always\': must be "auto", "require" or "off"'),
        ({"warmup": 0}, "warmup=0: must be a whole number of at least 1"),
        ({"max_graphs": 1.5}, "max_graphs=1.5"),
        ({"metrics_ring": 1}, "metrics_ring=1: must be a whole number of at least 2"),
        ({"partial": "skip"}, "partial='skip'"),
        ({"verify": "always"}, "verify='always'"),
        ({"verify": 0}, "verify=0"),
        ({"accumulate": 0}, "accumulate=0"),
        ({"amp": torch.float32}, "amp=torch.float32"),
        ({"scaler": 3.0, "amp": torch.float16}, "scaler=3.0"),
        ({"scaler": GradScaler()}, "scaler is set and amp is not"),
        ({"compile": "yes"}, "compile='yes'"),
        ({"compile": {"mode": "reduce-overhead"}}, "makes GPU graphs of its own"),
        ({"compile": {"mode": "max-autotune"}}, "max-autotune-no-cudagraphs"),
        ({"compile": {"options": {"triton.cudagraphs": True}}}, "makes GPU graphs of its own"),
        ({"learning_rate": 1}, "learning_rate: no such option; there are max_grad_norm"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_legal(wrong, words):
    with pytest.raises(ConfigError) as caught:
        merged(None, wrong)
    assert words in str(caught.value)


def test_options_are_the_fields_of_step_and_capture():
    fields = {field.name for field in dataclasses.fields(StepConfig)}
    fields |= {field.name for field in dataclasses.fields(CaptureConfig)} - {"mode"}
    assert set(StepOptions.__annotations__) == fields


def test_options_reach_their_owners():
    config = merged(None, {"capture": "require", "warmup": 5, "max_grad_norm": 2.0})
    assert config == StepConfig(max_grad_norm=2.0, capture=CaptureConfig(mode="require", warmup=5))


def test_a_configuration_and_options_at_once_are_refused():
    with pytest.raises(ConfigError, match="config is given and amp as well"):
        merged(StepConfig(), {"amp": torch.bfloat16})
    with pytest.raises(ConfigError, match="must be a CaptureConfig"):
        StepConfig(capture="auto")
