"""Kills ranks at random while they train, and looks for what is lost or left behind.

Four process ranks of a small model are trained in each mode; every few seconds one or two of them
die by kill -9 and come back. In the end every sample of every whole epoch must have moved the
shared weights once, and no process, descriptor, shared-memory file or port may be left.

    python packages/flodl/tests/distributed/runs/soak.py --seconds 120
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch

PROGRAM = Path(__file__).parent / "programs" / "soaked.py"
MODES = ("cpu_sync", "cpu_cadence", "cpu_async", "gloo_sync", "gloo_cadence")
RANKS, EVERY_S = 4, 5.0
START_S, BACK_S, END_S = 120.0, 60.0, 90.0
SHARED = Path("/dev/shm")
LEGAL_SHARES = tuple(1 / ranks for ranks in range(1, RANKS + 1))
DESCRIPTORS = 2
"""Descriptors by which two moments of rest may differ: a request that is just answered."""


class SoakFailed(AssertionError):
    """What was lost or left behind."""


@dataclass(kw_only=True)
class SoakResult:
    """What a soak of one mode came to."""

    mode: str
    seconds: float
    epochs: int
    kills: int
    deaths: int
    generations: int
    retrained: int
    slowest_return_s: float
    """Longest time from a kill until there were four ranks again."""
    descriptors: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of launcher, controller and host daemon: before the first kill, and after the last."""
    megabytes: dict[str, tuple[float, float]] = field(default_factory=dict)

    def line(self) -> str:
        """Return the result as one line."""
        held = ", ".join(f"{name} {a}->{b}" for name, (a, b) in self.descriptors.items())
        memory = ", ".join(f"{name} {a:.0f}->{b:.0f}" for name, (a, b) in self.megabytes.items())
        return (
            f"{self.mode}: {self.kills} kills in {self.seconds:.0f} s, {self.deaths} deaths, "
            f"{self.generations} generations, {self.epochs} whole epochs, {self.retrained} samples "
            f"trained again, slowest return {self.slowest_return_s:.1f} s; "
            f"descriptors {held}; MB {memory}"
        )


class Soak:
    """One run that is killed at.

    Args:
        mode: One of ``MODES``.
        seconds: How long ranks are killed.
        seed: Of the choice of ranks and moments.
        folder: Where the run works.
    """

    def __init__(self, mode: str, seconds: float, seed: int, folder: Path) -> None:
        self._mode, self._seconds, self._folder = mode, seconds, folder
        self._random = random.Random(f"{mode}-{seed}")
        for name in ("ranks", "weights"):
            (folder / name).mkdir()
        self._errors: list[str] = []
        self._known: set[psutil.Process] = set()
        self._slowest = 0.0
        self._kills = 0
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), mode, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
            cwd=folder,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def run(self) -> SoakResult:
        """Kill ranks, stop the run, and judge it.

        Raises:
            SoakFailed: Something was lost or left behind.
        """
        try:
            self._await(self._is_whole, START_S, "four ranks that train")
            self._await_epochs(1, START_S)
            before = self._held()
            port = self._port()
            self._kill_on()
            self._await(self._is_whole, BACK_S, "four ranks that train again")
            self._await_epochs(2, BACK_S)
            after = self._held()
            (self._folder / "stop").touch()
            found = self._end()
        finally:
            self._clean_up()
        self._judge_what_is_left(port)
        return self._judged(found, before, after)

    # ------------------------------------------------------------------ faults

    def _kill_on(self) -> None:
        over = time.monotonic() + self._seconds
        while time.monotonic() < over:
            self._pause(self._random.uniform(0.0, 1.0))
            started = time.monotonic()
            for victim in self._victims():
                self._kills += 1
                victim.kill()
                self._pause(self._random.choice((0.0, 0.0, 0.3)))
            if self._kills:
                self._await(self._is_whole, BACK_S, "four ranks that train again")
                self._slowest = max(self._slowest, time.monotonic() - started)
            self._pause(max(0.0, started + EVERY_S - time.monotonic()))

    def _victims(self) -> list[psutil.Process]:
        ranks = self._ranks()
        return self._random.sample(ranks, min(len(ranks), self._random.choice((1, 1, 2, 3))))

    def _pause(self, seconds: float) -> None:
        over = time.monotonic() + seconds
        while (left := over - time.monotonic()) > 0:
            self._look()
            time.sleep(min(0.1, left))

    # ------------------------------------------------------------------ watching

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    def _ranks(self) -> list[psutil.Process]:
        """Return the ranks that have built their model and are alive."""
        found = []
        for file in (self._folder / "ranks").iterdir():
            try:
                process = psutil.Process(int(file.name))
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def _is_whole(self) -> bool:
        return len(self._ranks()) == RANKS

    def _look(self) -> None:
        if self._process.poll() is not None:
            raise SoakFailed(f"{self._mode}: the run has ended\n{self._last_words()}")
        self._known |= set(_children(self._process.pid))

    def _await(self, is_there: Callable[[], bool], limit_s: float, what: str) -> None:
        over = time.monotonic() + limit_s
        while not is_there():
            self._look()
            if time.monotonic() > over:
                raise SoakFailed(
                    f"{self._mode}: no {what} within {limit_s:.0f} s\n{self._last_words()}"
                )
            time.sleep(0.05)

    def _await_epochs(self, count: int, limit_s: float) -> None:
        weights = self._folder / "weights"
        wanted = len(list(weights.glob("*.pt"))) + count
        self._await(
            lambda: len(list(weights.glob("*.pt"))) >= wanted, limit_s, f"{count} more epochs"
        )

    def _parts(self) -> dict[str, psutil.Process]:
        """Return launcher, controller and host daemon."""
        launcher = psutil.Process(self._process.pid)
        parts = {"launcher": launcher}
        for child in launcher.children():
            is_daemon = "flodl.distributed.hostd" in child.cmdline()
            parts["hostd" if is_daemon else "controller"] = child
        return parts

    def _held(self) -> dict[str, tuple[list[str], float]]:
        return {
            name: (_descriptors(process.pid), process.memory_info().rss / 2**20)
            for name, process in self._parts().items()
        }

    def _port(self) -> int:
        for connection in self._parts()["launcher"].net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                return int(connection.laddr.port)
        raise SoakFailed(f"{self._mode}: the launcher holds no port")

    # ------------------------------------------------------------------ the end

    def _end(self) -> dict[str, object]:
        assert self._process.stdout is not None
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise SoakFailed(
                f"{self._mode}: not over {END_S:.0f} s after its stop\n{self._last_words()}"
            ) from None
        text = self._process.stdout.read().strip()
        if self._process.returncode or not text:
            raise SoakFailed(
                f"{self._mode}: status {self._process.returncode}\n{self._last_words()}"
            )
        result: dict[str, object] = json.loads(text.splitlines()[-1])
        return result

    def _clean_up(self) -> None:
        """End the launcher of a soak that failed; all others follow it."""
        if self._process.poll() is None:
            self._known |= set(_children(self._process.pid))
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            for process in self._known:
                if process.is_running():
                    process.kill()
        self._reader.join(10)

    def _judge_what_is_left(self, port: int) -> None:
        _, alive = psutil.wait_procs(self._known, timeout=10)
        _require(not alive, f"{self._mode}: processes are left: {alive}")
        run = next((line.split()[-1] for line in self._errors if line.startswith("ddp: run")), "")
        _require(bool(run), f"{self._mode}: the run has no name\n{self._last_words()}")
        left = sorted(SHARED.glob(f"flodl-{run}*")) if SHARED.is_dir() else []
        _require(not left, f"{self._mode}: shared memory is left: {left}")
        folder = Path(tempfile.gettempdir()) / f"flodl-{os.getuid()}" / run
        _require(not folder.exists(), f"{self._mode}: {folder} is left")
        with socket.socket() as caller:
            _require(
                caller.connect_ex(("127.0.0.1", port)) != 0, f"{self._mode}: port {port} is open"
            )

    def _judged(
        self,
        found: dict[str, object],
        before: dict[str, tuple[list[str], float]],
        after: dict[str, tuple[list[str], float]],
    ) -> SoakResult:
        mode = self._mode
        _require(found["error"] is None, f"{mode}: {found['error']}\n{self._last_words()}")
        whole = int(str(found["finished"]))
        accounts = found["accounts"]
        assert isinstance(accounts, list)
        for account in accounts[:whole]:
            done = account["committed"] + account["dropped"] + account["skipped"]
            _require(done == account["total"], f"{mode}: the account is wrong: {account}")
        _require(
            [account["epoch"] for account in accounts[:whole]] == [*range(whole)],
            f"{mode}: epochs are missing: {accounts}",
        )
        self._judge_weights(whole)
        for name, (paths, _) in before.items():
            more = Counter(after[name][0]) - Counter(paths)
            _require(
                len(after[name][0]) <= len(paths) + DESCRIPTORS,
                f"{mode}: {name} holds {len(after[name][0])} descriptors, {len(paths)} before "
                f"the first death; new: {dict(more)}",
            )
        deaths = found["deaths"]
        assert isinstance(deaths, list)
        return SoakResult(
            mode=mode,
            seconds=self._seconds,
            epochs=whole,
            kills=self._kills,
            deaths=len(deaths),
            generations=int(str(found["generations"])),
            retrained=sum(account["retrained"] for account in accounts),
            slowest_return_s=self._slowest,
            descriptors={k: (len(v[0]), len(after[k][0])) for k, v in before.items()},
            megabytes={k: (v[1], after[k][1]) for k, v in before.items()},
        )

    def _judge_weights(self, whole: int) -> None:
        """Check by the weights themselves that each epoch had each sample once.

        Where ranks wait for the average and each has the same say, a sample that one of w ranks
        trained moves its weight by 1/w. Blended weights only tell that every sample was there.
        """
        last = torch.zeros(())
        for epoch in range(whole):
            file = self._folder / "weights" / f"{epoch}.pt"
            _require(file.exists(), f"{self._mode}: epoch {epoch} was not saved")
            weights = torch.load(file).double()
            moved, last = weights - last, weights
            if self._mode == "cpu_async":
                continue
            off = torch.stack([(moved - share).abs() for share in LEGAL_SHARES]).amin(0)
            wrong = torch.nonzero(off > 1e-3).flatten().tolist()
            _require(
                not wrong,
                f"{self._mode}: in epoch {epoch} samples {wrong[:8]} (of {len(wrong)}) moved the "
                f"weights by {[round(float(moved[k]), 4) for k in wrong[:8]]}",
            )
        if whole:
            _require(float(last.min()) > 0, f"{self._mode}: a sample was never trained")

    def _last_words(self) -> str:
        self._reader.join(0.2)
        return "".join(self._errors[-40:])


def soak(mode: str, seconds: float, seed: int = 0, *, keeps: bool = False) -> SoakResult:
    """Soak one mode.

    Args:
        mode: One of ``MODES``.
        seconds: How long ranks are killed; start and end come on top.
        seed: Of the choice of ranks and moments.
        keeps: Leave the folder of a soak that failed, with the weights of each epoch.

    Raises:
        SoakFailed: Something was lost or left behind.
    """
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        result = Soak(mode, seconds, seed, folder).run()
    except SoakFailed as failure:
        if keeps:
            raise SoakFailed(f"{failure}\nits files are in {folder}") from None
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return result


def _require(is_so: bool, text: str) -> None:
    if not is_so:
        raise SoakFailed(text)


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _descriptors(pid: int) -> list[str]:
    """Return what the descriptors of a process are open on, numbers left out."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(link.readlink()).partition(":[")[0])
        except FileNotFoundError:
            continue
    return found


def main() -> int:
    """Soak the modes that the command line names, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--modes", default=",".join(MODES), help="names with commas between")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="leave the files of what failed")
    given = parser.parse_args()
    failed = 0
    for mode in given.modes.split(","):
        try:
            result = soak(mode, given.seconds, given.seed, keeps=given.keep)
            print(result.line(), flush=True)
        except SoakFailed as failure:
            failed += 1
            print(f"FAILED {failure}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
