"""The host daemon as a real process, with ranks that import no torch, against a real port."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flodl.distributed.config.timeouts import Timeouts
from flodl.distributed.controller.commands import ToHost
from flodl.distributed.controller.events import FromHost, FromMember
from flodl.distributed.hostd.command import Command
from flodl.distributed.hostd.options import HostOptions
from flodl.distributed.protocol.messages import (
    Accept,
    Bye,
    Fence,
    Fenced,
    Hello,
    Progress,
    RankExit,
    Ready,
    Reject,
)
from flodl.distributed.protocol.values import Admission, Device

pytestmark = pytest.mark.multiproc
TOKEN = "a-token-of-the-run"
RANK = """
import os, re, signal, subprocess, sys, time
from flodl.distributed.cluster.role import place_of
from flodl.distributed.protocol.messages import Accept, Bye, Ready
from flodl.distributed.worker.link import RankLink

place = place_of()
link = RankLink(place)
link.progress("boot", step=place.number + 5)
print("rank", place.number, "incarnation", place.incarnation, "pid", os.getpid(), flush=True)
while True:
    link.wait(30.0)
    for mail in link.take():
        print(type(getattr(mail, "message", mail)).__name__, flush=True)
        match getattr(mail, "message", None):
            case Accept(gen=gen):
                link.send(Ready(incarnation=place.incarnation, build_ms=1.0), gen)
                how = sys.argv[1]
                if how == "raise":
                    raise ValueError("in user code")
                if how == "compute":
                    sum(range(10**11))
                if how == "litter":
                    subprocess.Popen(["sleep", "1000"], start_new_session=True)
            case Bye():
                link.send(Bye())
                link.close()
                sys.exit(0)
"""


class Host:
    """A host daemon in a process of its own."""

    def __init__(self, folder, controller, how="", ranks=1, **changes):
        (folder / "rank.py").write_text(RANK)
        self.folder = folder
        self.timeouts = Timeouts(heartbeat=0.1, suspect=2.0, host_lease=4.0, dead=6.0)
        values = {
            "run": "run-1",
            "nonce": "nonce-1",
            "address": controller.address,
            "token": TOKEN,
            "host": "node-a",
            "devices": tuple(Device(uuid="cpu", name="CPU", index=n) for n in range(ranks)),
            "run_dir": str(folder),
            "cwd": str(folder),
            "command": Command.parse(["python", "rank.py", how]),
            "timeouts": self.timeouts,
            "respawn": 0,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "flodl.distributed.hostd"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "FLODL_ZYGOTE": "0"},
            start_new_session=True,
        )
        line = HostOptions(**{**values, **changes}).to_json()
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def end(self, timeout_s=30):
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out.decode(), err.decode()

    def log(self, number=0):
        file = self.folder / "logs" / f"rank{number}.log"
        return file.read_text() if file.exists() else ""

    def wait_for(self, text, number=0, timeout_s=30):
        deadline = time.monotonic() + timeout_s
        while text not in self.log(number):
            assert time.monotonic() < deadline, self.log(number)
            time.sleep(0.005)

    def pid(self, number=0):
        self.wait_for("pid", number)
        return int(self.log(number).split("pid ")[-1].split()[0])


@pytest.fixture
def host(tmp_path, controller, core):
    """Start a daemon whose ranks the core lets in."""
    made = []

    def accept(event):
        if not isinstance(event.message, Hello):
            return []
        members = tuple(
            Admission(uid=offer.uid, incarnation=offer.incarnation, number=number)
            for number, offer in enumerate(event.message.offers)
        )
        accepted = Accept(members=members, gen=1, run_nonce="nonce-1")
        return [ToHost(host=event.host, gen=1, message=accepted)]

    core.answers[FromHost] = accept

    def start(how="", **changes):
        made.append(Host(tmp_path, controller, how, **changes))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.terminate()
        one.process.communicate(timeout=20)


def told(core, kind, timeout_s=30.0):
    """Return the next message of a kind that the host itself sent."""
    while True:
        event = core.wait_for(FromHost, timeout_s)
        if isinstance(event.message, kind):
            return event.message


def say(controller, message, member=""):
    """Have the controller say something to the host, or to a member of it."""
    from flodl.distributed.serving.switchboard import Outgoing

    host = "" if member else "node-a"
    controller.server._switchboard.post([Outgoing(message, 1, host=host, member=member)])


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_host_brings_its_ranks_and_sees_them_out(host, core, controller):
    daemon = host(ranks=2)
    hello = told(core, Hello)
    assert [offer.uid for offer in hello.offers] == ["node-a/cpu/0", "node-a/cpu/1"]
    assert hello.versions.torch.startswith("2.")
    ready = {core.wait_for(FromMember).uid for _ in range(2)}
    assert ready == {"node-a/cpu/0", "node-a/cpu/1"}
    for uid in sorted(ready):
        say(controller, Bye(), uid)
    exits = [told(core, RankExit) for _ in range(2)]
    assert {(e.code, e.signal) for e in exits} == {(0, None)}
    assert {(e.uid, e.last_step) for e in exits} == {("node-a/cpu/0", 5), ("node-a/cpu/1", 6)}
    say(controller, Bye())
    code, out, _ = daemon.end()
    assert code == 0
    assert "[node-a/rank1] rank 1 incarnation 0" in out


def test_an_exception_is_reported_with_the_end_of_the_log(host, core):
    host("raise")
    gone = told(core, RankExit)
    assert (gone.code, gone.signal) == (1, None)
    assert "ValueError: in user code" in gone.log_tail
    assert 'rank.py", line' in gone.log_tail


def test_a_killed_rank_is_reported_at_once(host, core):
    daemon = host()
    core.wait_for(FromMember)
    pid = daemon.pid()
    started = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    gone = told(core, RankExit)
    assert time.monotonic() - started < 2.0
    assert (gone.code, gone.signal, gone.is_oom_killed) == (None, 9, False)


def test_a_fence_kills_and_is_confirmed_once_the_rank_is_gone(host, core, controller):
    daemon = host()
    core.wait_for(FromMember)
    pid = daemon.pid()
    os.kill(pid, signal.SIGSTOP)
    say(controller, Fence(uid="node-a/cpu/0", incarnation=0, deadline=5.0))
    assert told(core, Fenced) == Fenced(uid="node-a/cpu/0", incarnation=0)
    assert not is_alive(pid)
    exits = [e.message for e in core.seen if isinstance(getattr(e, "message", None), RankExit)]
    assert [e.signal for e in exits] == [9]


def test_a_stopped_rank_looks_dead_and_a_computing_one_does_not(host, core):
    daemon = host("compute")
    daemon.wait_for("Accept")
    deadline = time.monotonic() + 4.0
    ages = []
    while time.monotonic() < deadline:
        ages += [rank.beat_age for rank in told(core, Progress).ranks]
    # the interpreter lock is held for longer than this test: only the kernel knows of its life
    assert max(ages[4:]) < 1.5
    os.kill(daemon.pid(), signal.SIGSTOP)
    deadline = time.monotonic() + 30.0
    while max(rank.beat_age for rank in told(core, Progress).ranks) < 2.0:
        assert time.monotonic() < deadline
    assert is_alive(daemon.pid()), "it is the controller that has it fenced"


def test_a_rank_that_died_is_brought_again_under_the_next_incarnation(host, core):
    daemon = host(respawn=1)
    told(core, Hello)
    core.wait_for(FromMember)
    os.kill(daemon.pid(), signal.SIGKILL)
    again = told(core, Hello)
    assert [offer.incarnation for offer in again.offers] == [1]
    event = core.wait_for(FromMember)
    assert event.message == Ready(incarnation=1, build_ms=1.0)
    daemon.wait_for("incarnation 1")


def test_many_deaths_leave_nothing_open_in_the_daemon(host, core):
    daemon = host(respawn=20)
    core.wait_for(FromMember)
    counts, shared = [], len(list(Path("/dev/shm").glob("flodl-run-1*")))
    for incarnation in range(8):
        daemon.wait_for(f"incarnation {incarnation} ")
        counts.append(len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir())))
        os.kill(daemon.pid(), signal.SIGKILL)
        told(core, RankExit)
        assert core.wait_for(FromMember).message == Ready(incarnation=incarnation + 1, build_ms=1.0)
    assert len(set(counts)) == 1, counts
    children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children")
    assert len(children.read_text().split()) == 1
    assert len(list(Path("/dev/shm").glob("flodl-run-1*"))) == shared


def test_what_a_rank_has_started_goes_with_the_daemon(host, core, controller):
    daemon = host("litter")
    core.wait_for(FromMember)
    deadline = time.monotonic() + 10
    litter = []
    while not litter and time.monotonic() < deadline:
        litter = [
            int(p.name)
            for p in Path("/proc").glob("[0-9]*")
            if _words(p) == [b"sleep", b"1000"] and str(daemon.folder).encode() in _environ(p)
        ]
    assert litter
    say(controller, Bye(), "node-a/cpu/0")
    told(core, RankExit)
    say(controller, Bye())
    assert daemon.end()[0] == 0
    assert not any(map(is_alive, litter))


def _words(process):
    try:
        return (process / "cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []


def _environ(process):
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def test_a_wrong_token_ends_the_daemon_and_says_so_without_showing_it(host):
    daemon = host(token="not-the-token")
    code, _, err = daemon.end()
    assert code == 1
    assert "the token is wrong" in err
    assert "not-the-token" not in err


def test_a_host_that_is_turned_away_says_why(tmp_path, core, controller):
    def reject(event):
        if not isinstance(event.message, Hello):
            return []
        rejected = Reject(
            code=4426,
            kind="version_skew",
            reason="torch 1.0 is too old",
            is_retryable=False,
            uids=tuple(offer.uid for offer in event.message.offers),
        )
        return [ToHost(host=event.host, gen=0, message=rejected)]

    core.answers[FromHost] = reject
    daemon = Host(tmp_path, controller)
    code, _, err = daemon.end()
    assert code == 2
    assert "host node-a was turned away: torch 1.0 is too old" in err


def test_a_daemon_that_is_told_nothing_says_so():
    done = subprocess.run(
        [sys.executable, "-m", "flodl.distributed.hostd"],
        input="\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "told no options" in done.stderr


def test_a_daemon_loads_neither_torch_nor_numpy():
    code = (
        "import sys; import flodl.distributed.hostd.__main__, flodl.distributed.hostd.daemon\n"
        "print(sorted({'torch', 'numpy', 'fastapi', 'uvicorn'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_a_daemon_that_does_not_last_ends_with_its_starter(host, core):
    daemon = host(lasts=False)
    core.wait_for(FromMember)
    pid = daemon.pid()
    daemon.process.stdin.close()
    daemon.process.wait(timeout=20)
    assert daemon.process.returncode == 1
    assert not is_alive(pid)
    daemon.process.stdin = None


def test_ranks_hold_when_the_controller_is_away_and_end_after_its_grace(host, core, controller):
    timeouts = Timeouts(
        heartbeat=0.05, suspect=0.3, host_lease=0.6, dead=1.0, controller_grace=1.5, terminate=0.2
    )
    daemon = host(timeouts=timeouts)
    core.wait_for(FromMember)
    controller.hang_up()
    daemon.wait_for("LinkLost")
    daemon.wait_for("HostLeaseExpired")
    pid = daemon.pid()
    code, _, _ = daemon.end(timeout_s=30)
    assert code == 1
    assert not is_alive(pid)
    log = daemon.log()
    assert log.index("LinkLost") < log.index("HostLeaseExpired")
