import pytest

from flodl.core.errors import ConfigError, LaunchError
from flodl.distributed.launch.decision import Part, Wish, decide

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29400"}
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "n[01-02]"}


def part(wish=None, environ=None, gpus=0):
    wish = {} if wish is None else wish
    return decide(Wish(**wish), gpu_count=lambda: gpus, environ=environ or {}).part


@pytest.mark.parametrize(
    ("wish", "environ", "gpus", "expected"),
    [
        # the first rule that fits decides
        ({"has_cluster": True}, {"FLODL_INTERNAL_ROLE": "rank", **TORCHRUN}, 2, Part.RANK),
        ({}, {"FLODL_INTERNAL_ROLE": "controller", **SLURM}, 2, Part.CONTROLLER),
        ({"has_cluster": True}, {**TORCHRUN, **SLURM}, 2, Part.OUTSIDE_RANK),
        ({"has_cluster": True}, SLURM, 2, Part.OUTSIDE_RANK),
        ({"has_cluster": True, "devices": 2}, {}, 2, Part.LAUNCH_CLUSTER),
        ({"devices": 2}, {}, 0, Part.LAUNCH_HOST),
        ({"ranks": 3}, {}, 0, Part.LAUNCH_HOST),
        ({}, {}, 2, Part.LAUNCH_HOST),
        ({}, {}, 1, Part.SOLO),
        ({}, {}, 0, Part.SOLO),
        ({"devices": 1}, {}, 4, Part.SOLO),
        ({"ranks": 1}, {}, 4, Part.SOLO),
        # one task of Slurm is no rank, and half of torchrun's variables are not torchrun
        ({}, {**SLURM, "SLURM_NTASKS": "1"}, 0, Part.SOLO),
        ({}, {"RANK": "0", "WORLD_SIZE": "2"}, 0, Part.SOLO),
        # an explicit method is a wish for processes, also for one
        ({"launch": "script"}, {}, 0, Part.LAUNCH_HOST),
        ({"launch": "thread", "ranks": 2}, {}, 0, Part.LAUNCH_HOST),
        # a test that calls run() must not run the tests again
        ({}, {"PYTEST_CURRENT_TEST": "x"}, 2, Part.SOLO),
        ({"ranks": 2}, {"PYTEST_CURRENT_TEST": "x"}, 0, Part.SOLO),
        ({"ranks": 2, "launch": "spawn"}, {"PYTEST_CURRENT_TEST": "x"}, 0, Part.LAUNCH_HOST),
    ],
)
def test_the_first_rule_that_fits_decides(wish, environ, gpus, expected):
    assert part(wish, environ, gpus) is expected


def test_gpus_are_counted_only_where_their_number_decides():
    def forbidden():
        raise AssertionError("asked")

    for wish in ({"ranks": 2}, {"devices": 1}, {"launch": "script"}, {"has_cluster": True}):
        decide(Wish(**wish), gpu_count=forbidden, environ={})


def test_the_place_that_another_launcher_gave_comes_along():
    decision = decide(Wish(), gpu_count=lambda: 0, environ=TORCHRUN)
    assert decision.outside is not None
    assert (decision.outside.rank, decision.outside.port) == (1, 29400)
    assert "torchrun" in decision.reason


def test_a_role_that_is_none_is_an_error():
    with pytest.raises(LaunchError, match="'boss'"):
        part(environ={"FLODL_INTERNAL_ROLE": "boss"})


def test_all_that_is_wrong_with_a_wish_is_said_at_once():
    with pytest.raises(ConfigError) as error:
        Wish(launch="fork", ranks=0, devices=3, has_cluster=True)
    for text in ("launch='fork'", "ranks=0", "3 devices"):
        assert text in str(error.value)
    with pytest.raises(ConfigError, match="threads do not leave"):
        Wish(launch="thread", has_cluster=True)
    with pytest.raises(ConfigError, match="at least one device"):
        Wish(devices=0)
