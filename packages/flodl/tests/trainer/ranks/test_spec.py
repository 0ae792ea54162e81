"""What a run's settings mean for its ranks, its controller and its host."""

import pytest

from flodl import ElasticConfig, TrainerConfig
from flodl.trainer.ranks.spec import RunSpec
from flodl_sys import names


@pytest.mark.parametrize(("scale", "grace"), [(None, 7.0), ("2", 14.0)])
def test_all_wait_for_a_lost_controller_as_long_as_was_asked(monkeypatch, scale, grace):
    monkeypatch.delenv(names.NET_TIMEOUT_SCALE.name, raising=False)
    if scale is not None:
        monkeypatch.setenv(names.NET_TIMEOUT_SCALE.name, scale)
    config = TrainerConfig(elastic=ElasticConfig(controller_grace=7.0))
    assert RunSpec(None, None, None, config).timeouts().controller_grace == grace
