"""A user's program in small: the same file is launcher, controller and rank."""

import json
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from doubles import CoreDouble

from flodl.distributed.cluster.role import Role, role_of
from flodl.distributed.serving.process import ControllerProcess

RANKS = 2
MODE = os.environ.get("DOUBLE_MODE", "")


def be_rank():
    from flodl.distributed.cluster.role import place_of
    from flodl.distributed.protocol.messages import Accept, Bye, FormAck, Ready, Reconfigure, World
    from flodl.distributed.worker.link import RankLink

    place = place_of()
    link = RankLink(place)
    print(f"rank {place.number} of run {place.ordinal} is here", flush=True)
    print(f"pid {os.getpid()}", flush=True)
    link.progress("boot", step=place.number + 5)
    while True:
        link.wait(30.0)
        for mail in link.take():
            match getattr(mail, "message", None):
                case Accept(gen=gen):
                    link.send(Ready(incarnation=place.incarnation, build_ms=1.0), gen)
                case World(gen=gen):
                    link.store.set(f"{gen}/here{place.number}", b"x")
                    link.store.wait([f"{gen}/here{n}" for n in range(RANKS)], 30.0)
                    total = link.store.add(f"{gen}/sum", place.number + 1)
                    print(f"sum {total}", flush=True)
                    if MODE == "raise":
                        raise RuntimeError("user code failed")
                    link.send(FormAck(gen=gen, ok=True, ms=1.0), gen)
                case Reconfigure(gen=gen):
                    print(f"again {gen}", flush=True)
                    link.send(Ready(incarnation=place.incarnation, build_ms=1.0), gen)
                case Bye() if MODE != "stubborn":
                    link.send(Bye())
                    link.close()
                    sys.exit(0)


def be_launcher():
    from flodl.distributed.hostd.command import Command
    from flodl.distributed.launch import local
    from flodl.distributed.launch.attach import AttachedRun
    from flodl.distributed.launch.hardware import cpu_devices
    from flodl.distributed.launch.ordinal import next_ordinal
    from flodl.distributed.launch.signals import SignalWatch

    is_pickled = MODE == "spawn"
    plan = local.LocalPlan(
        devices=cpu_devices(RANKS),
        command=None if is_pickled else Command.parse(sys.orig_argv),
        payload={"greet": lambda name: f"hello {name}"} if is_pickled else {},
        entry="three_roles:take_payload" if is_pickled else "",
        ordinal=next_ordinal(),
        run_dir=Path(os.environ["DOUBLE_RUN_DIR"]),
        threads=1,
        respawn=0,
    )
    started = time.perf_counter()
    if MODE == "attach":
        run = AttachedRun(os.environ["DOUBLE_RUN_DIR"], lambda note: None)
        run.stop()
    else:
        run = local.LocalRun(plan, lambda note: None)
    watch = SignalWatch(run)
    print(f"run {run.run}", flush=True)
    run.start()
    watch.install()
    ending = run.wait()
    watch.remove()
    told = {
        "finish": ending.finish,
        "reason": ending.reason,
        "tail": ending.log_tail,
        "code": watch.exit_code,
        "took": time.perf_counter() - started,
    }
    print(json.dumps(told))


def take_payload(file):
    from flodl.distributed.launch.payload import read_payload

    print(read_payload(file)["greet"](role_of().value), flush=True)
    be_started()


def be_started():
    if role_of() is Role.RANK:
        be_rank()
        return
    process = ControllerProcess()
    process.serve(CoreDouble(RANKS, kept=process.saved_state(), mode=MODE))


def launch_twice():
    """Launch two runs, one after the other, and say what each left open in this process."""
    for _ in range(2):
        be_launcher()
        left = len(list(Path("/proc/self/fd").iterdir()))
        print(f"open: {left} files, {threading.active_count()} threads", flush=True)


if __name__ == "__main__":
    if role_of() is not Role.LAUNCHER:
        if MODE == "broken":
            print(undefined)  # noqa: F821
        be_started()
    elif MODE == "twice":
        launch_twice()
    else:
        be_launcher()
