import threading

import pytest

from flodl.core.resources import GpuSnapshot
from flodl.device.sampler import ResourceSampler
from flodl.distributed.cluster.role import RunPlace
from flodl.distributed.protocol.messages import World
from flodl.distributed.protocol.values import Place
from flodl.distributed.worker.witness import Witness, machine_of
from flodl.records.telemetry import RankTelemetry


class FakeProbe:
    error = None

    def read(self):
        if self.error is not None:
            raise self.error
        return [
            GpuSnapshot(device_index=i, name="card", util_percent=10.0 + i, vram_total_bytes=100)
            for i in range(3)
        ]


class Sent:
    """Keeps what a witness sends, and wakes who waits for it."""

    def __init__(self):
        self.messages, self.came = [], threading.Semaphore(0)

    def __call__(self, message):
        self.messages.append(message)
        self.came.release()

    def next(self):
        assert self.came.acquire(timeout=10)
        return RankTelemetry.from_body(self.messages[-1].values)


def place(number, host="alpha", device=-1):
    return RunPlace(
        run="r", nonce="n", run_dir="/", host=host, uid=f"u{number}", number=number,
        device_index=device,
    )  # fmt: skip


def world(*hosts, ranks=None):
    order = range(len(hosts)) if ranks is None else ranks
    return World(
        gen=1,
        members=tuple(
            Place(uid=f"u{number}", rank=rank, number=number, host=host)
            for (number, host), rank in zip(enumerate(hosts), order, strict=True)
        ),
        topology="flat",
        nonce="n",
        timeouts={},
        version=0,
    )


@pytest.fixture
def witness():
    made = []

    def make(where, sent, **options):
        devices = [where.device_index] if where.device_index >= 0 else []
        sampler = ResourceSampler(devices, poll_ms=2, probe=FakeProbe(), allocated=lambda: {1: 40})
        made.append(Witness(where, sent, sampler=sampler, pause_s=0.01, **options))
        made[-1].probe = sampler._probe
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_the_lowest_rank_of_a_host_tells_of_it_and_the_others_of_their_devices(witness):
    first, second = Sent(), Sent()
    lowest = witness(place(0, device=0), first, label="card")
    other = witness(place(1, device=1), second)
    for one in (lowest, other):
        one.meet(world("alpha", "alpha"))
    told, more = first.next(), second.next()
    assert (told.rank, told.device, told.label) == (0, 0, "card")
    assert told.res["gpu_util"] == (10.0, 10.0, 10.0)
    assert told.host_res["ram_total"] > 0
    assert (more.rank, more.res["gpu_util"][1], more.res["vram_alloc"][1]) == (1, 11.0, 40)
    assert more.host_res == {}


def test_a_rank_on_the_cpu_tells_of_its_host_alone(witness):
    sent = Sent()
    witness(place(0), sent).meet(world("alpha", "alpha"))
    told = sent.next()
    assert told.res == {}
    assert set(told.host_res) == {"cpu", "ram_used", "ram_total", "cpus"}


def test_who_has_nothing_to_tell_asks_nothing(witness):
    sent = Sent()
    silent = witness(place(1), sent)
    silent.meet(world("alpha", "alpha"))
    silent._sampler.poll()
    silent._reader.read()
    assert silent.telemetry() is None
    assert not sent.came.acquire(timeout=0.1)


def test_the_next_rank_takes_over_when_the_lowest_is_gone(witness):
    sent = Sent()
    heir = witness(place(1), sent)
    heir.meet(world("alpha", "alpha", "beta"))
    assert not sent.came.acquire(timeout=0.05)
    heir.meet(World(**{**fields(world("alpha", "alpha", "beta")), "members": tail()}))
    assert sent.next().rank == 1


def fields(message):
    return {name: getattr(message, name) for name in message.__slots__}


def tail():
    return world("alpha", "alpha", "beta").members[1:]


def test_ranks_that_are_hosts_of_their_own_count_by_their_machine(witness):
    first, second = Sent(), Sent()
    hosts = ("alpha.0", "alpha.1", "beta.0")
    witness(place(0, hosts[0]), first).meet(world(*hosts))
    witness(place(1, hosts[1]), second).meet(world(*hosts))
    assert first.next().host_res
    assert not second.came.acquire(timeout=0.05)
    assert [machine_of(name) for name in (*hosts, "gpu.example.org", "alpha")] == [
        "alpha", "alpha", "beta", "gpu.example.org", "alpha",
    ]  # fmt: skip


def test_a_reading_that_fails_is_told_once_and_the_next_one_counts(witness, caplog):
    sent = Sent()
    broken = witness(place(0, device=0), sent)
    broken.probe.error = OSError("driver")
    broken.meet(world("alpha"))
    assert not sent.came.acquire(timeout=0.05)
    broken.probe.error = None
    assert sent.next().res
    assert caplog.text.count("resources cannot be told: driver") == 1


def test_closing_ends_the_thread_and_nothing_begins_after_it(witness):
    sent = Sent()
    over = witness(place(0), sent)
    over.meet(world("alpha"))
    sent.next()
    over.close()
    over.close()
    count = len(sent.messages)
    over.meet(world("alpha"))
    assert "flodl-witness" not in {thread.name for thread in threading.enumerate()}
    assert len(sent.messages) == count
