"""Bears ranks as a host daemon does, and prints how each went; its argument is JSON."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from flodl.distributed.cluster.kinship import become_subreaper
from flodl.distributed.cluster.role import RunPlace
from flodl.distributed.hostd.birth import BirthOrder
from flodl.distributed.hostd.command import Command
from flodl.distributed.hostd.nursery import Nursery
from flodl.distributed.worker.progress import new_page

LIMIT_S = 60.0


def order(task, number):
    words = task.get("words")
    place = RunPlace(
        run="r",
        nonce="n",
        run_dir="/",
        number=number,
        parent=os.getpid(),
        threads=1,
        payload=task.get("payload"),
        entry=task.get("entry"),
    )
    return BirthOrder(
        place=place,
        environ={**os.environ, **task.get("environ", {})},
        cwd=task["cwd"],
        command=None if words is None else Command.parse([sys.executable, *words]),
    )


async def read_all(fd):
    data = b""
    while part := await asyncio.to_thread(os.read, fd, 65536):
        data += part
    os.close(fd)
    return data.decode()


async def collect(pid):
    give_up = time.monotonic() + LIMIT_S
    while time.monotonic() < give_up:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        await asyncio.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    raise TimeoutError(f"{pid} does not end")


async def bear(nursery, task, number):
    read_end, write_end = os.pipe()
    ours, theirs = socket.socketpair()
    page, null = new_page(), os.open(os.devnull, os.O_RDONLY)
    started = time.monotonic()
    pid = await nursery.bear(
        order(task, number), (null, write_end, write_end), (theirs.fileno(), page)
    )
    for fd in (write_end, page, null):
        os.close(fd)
    theirs.close()
    if task.get("kill_zygote"):
        os.kill(nursery.zygote_pid, signal.SIGKILL)
    if task.get("die"):
        print(json.dumps({"pid": pid}), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    ours.sendall(b"x")
    status = await collect(pid)
    took = time.monotonic() - started
    ours.close()
    nursery.forget(pid, status)
    text = await read_all(read_end)
    return {"pid": pid, "code": os.waitstatus_to_exitcode(status), "output": text, "took": took}


async def main():
    plan = json.loads(sys.argv[1])
    become_subreaper()
    nursery = Nursery(plan.get("options", ()), use_zygote=plan["use_zygote"])
    nursery.start()
    results = [await bear(nursery, task, n) for n, task in enumerate(plan["tasks"])]
    zygote = nursery.zygote_pid
    await nursery.close()
    if zygote is not None:
        with contextlib.suppress(ChildProcessError):
            nursery.forget(*os.waitpid(zygote, 0))
    left = list(Path("/proc/self/fd").iterdir())
    print(
        json.dumps({"results": results, "zygote": zygote, "fds": len(left), "daemon": os.getpid()})
    )


asyncio.run(main())
