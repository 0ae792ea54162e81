import pytest

from flodl.core.errors import ConfigError
from flodl.distributed.launch.environments.slurm import first_host, from_slurm

ENVIRON = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "6",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_TASKS_PER_NODE": "2(x3)",
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NODELIST": "gpu[03-05]",
}


def test_slurms_variables_are_read():
    outside = from_slurm(ENVIRON)
    assert (outside.rank, outside.world_size) == (5, 6)
    assert (outside.local_rank, outside.local_world_size) == (1, 2)
    assert outside.controller_host == "gpu03"
    assert outside.run == "slurm-4711-0"


def test_all_tasks_of_a_job_come_to_one_port_and_two_jobs_to_two():
    ports = {from_slurm({**ENVIRON, "SLURM_PROCID": str(r)}).port for r in range(6)}
    assert len(ports) == 1
    assert from_slurm({**ENVIRON, "SLURM_JOB_ID": "4712"}).port not in ports
    assert 1024 < ports.pop() < 65536


def test_a_task_alone_and_no_task_are_not_ranks_of_slurm():
    assert from_slurm({**ENVIRON, "SLURM_NTASKS": "1"}) is None
    assert from_slurm({}) is None


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("login1", "login1"),
        ("a,b,c", "a"),
        ("gpu[03-05,09],login1", "gpu03"),
        ("gpu[7]", "gpu7"),
        ("rack[1-2]-n,x", "rack1-n"),
        ("n-01.example.org", "n-01.example.org"),
    ],
)
def test_the_first_host_of_a_list_is_found(nodes, host):
    assert first_host(nodes) == host


def test_a_list_without_hosts_is_an_error():
    with pytest.raises(ConfigError, match="names no host"):
        first_host("")


@pytest.mark.parametrize(
    ("tasks", "node", "local"), [("4", "0", 4), ("2(x2),1", "2", 1), ("2,3", "1", 3), ("?", "0", 6)]
)
def test_tasks_of_this_node_are_counted(tasks, node, local):
    environ = {**ENVIRON, "SLURM_TASKS_PER_NODE": tasks, "SLURM_NODEID": node}
    assert from_slurm(environ).local_world_size == local
