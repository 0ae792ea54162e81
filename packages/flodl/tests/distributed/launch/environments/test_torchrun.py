import logging

import pytest

from flodl.core.errors import ConfigError
from flodl.distributed.launch.environments.base import Launcher
from flodl.distributed.launch.environments.torchrun import from_torchrun

ENVIRON = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29400",
    "TORCHELASTIC_RUN_ID": "job",
    "TORCHELASTIC_MAX_RESTARTS": "0",
}


def test_torchruns_variables_are_read():
    outside = from_torchrun(ENVIRON)
    assert outside.launcher is Launcher.TORCHRUN
    assert (outside.rank, outside.world_size) == (3, 4)
    assert (outside.local_rank, outside.local_world_size) == (1, 2)
    assert (outside.controller_host, outside.port, outside.run) == ("10.0.0.1", 29400, "job")
    assert not outside.is_first
    assert from_torchrun({**ENVIRON, "RANK": "0"}).is_first


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "MASTER_ADDR"])
def test_without_all_of_them_it_is_not_torchrun(missing):
    assert from_torchrun({k: v for k, v in ENVIRON.items() if k != missing}) is None


def test_a_variable_that_is_no_number_is_an_error_that_names_it():
    with pytest.raises(ConfigError, match="RANK='x'"):
        from_torchrun({**ENVIRON, "RANK": "x"})


def test_restarts_by_torchrun_are_advised_against(caplog):
    with caplog.at_level(logging.WARNING):
        from_torchrun({**ENVIRON, "TORCHELASTIC_MAX_RESTARTS": "3"})
    assert "--max-restarts=0" in caplog.text
