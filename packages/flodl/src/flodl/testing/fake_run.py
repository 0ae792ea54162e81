"""A run that trains nothing: ranks, hosts, GPUs, epochs and alerts, as a real one reports them.

``python -m flodl.testing.fake_run --ranks 8 --hosts 2`` serves one and prints its URL.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flodl.core.paths import ROOT, RecordTier
from flodl.records.board import RunBoard
from flodl.records.node import NodeReport
from flodl.web.app import create_app
from flodl.web.auth import Auth
from flodl.web.hub import Hub
from flodl.web.server import PortalServer, bound_socket

_GIB = 1 << 30
_GPUS = (("NVIDIA H200", 141 * _GIB, 1.0), ("GeForce GTX 1060 6GB", 6 * _GIB, 0.35))
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 220 300" width="220" height="300">'
    "{boxes}</svg>"
)
_LAYERS = ("input", "encoder.conv1", "encoder.conv2", "encoder.pool", "head.linear")


@dataclass(frozen=True, kw_only=True, slots=True)
class FakeRunShape:
    """How large the run is, and how it behaves."""

    ranks: int = 1
    hosts: int = 1
    epochs: int = 100
    windows: int = 20
    """Windows per epoch."""
    host_names: Sequence[str] = ()
    """Names of the hosts; ``host-0``, ``host-1``, ... where there are too few."""
    extra_keys: Sequence[str] = ("encoder.scan.loss", "accuracy", "grad_norm")
    has_gpus: bool = True
    nan_epoch: int | None = None
    """Epoch in which the first rank's ``grad_norm`` becomes NaN."""
    lost_epoch: int | None = None
    """Epoch in which the last rank dies."""
    seed: int = 0


class FakeRun:
    """Feeds a board with the records of a run, window by window.

    The same shape gives the same numbers.

    Args:
        shape: Size and behavior.
        board: Where records go; ``None`` makes a new board.
    """

    def __init__(self, shape: FakeRunShape, board: RunBoard | None = None) -> None:
        self.shape = shape
        self.board = RunBoard() if board is None else board
        self.window = 0
        self._rng = random.Random(shape.seed)  # noqa: S311 (numbers for a picture)
        names = [*shape.host_names, *(f"host-{n}" for n in range(shape.hosts))][: shape.hosts]
        self._hosts = [names[rank * shape.hosts // shape.ranks] for rank in range(shape.ranks)]
        self.tier = RecordTier(self._hosts)
        self._lost: set[int] = set()
        self._describe()

    @property
    def paths(self) -> list[str]:
        """Record path of each rank."""
        return [self.tier.path(rank, host) for rank, host in enumerate(self._hosts)]

    @property
    def is_over(self) -> bool:
        """Whether all epochs are done."""
        return self.window >= self.shape.epochs * self.shape.windows

    def step(self) -> None:
        """Report one window of every rank, and the epoch where it ends."""
        epoch, position = divmod(self.window, self.shape.windows)
        self._happen(epoch, position)
        self.board.start()
        done = self.window / (self.shape.epochs * self.shape.windows)
        reports = [self._report(rank, epoch, done) for rank in self._living()]
        engine = {"anchor": 8 + epoch // 10, "sync_ms": 4 + self._rng.random()}
        self.board.tree.publish(reports, engine=engine)
        self.window += 1
        if position + 1 == self.shape.windows:
            self._end_epoch(epoch, done)
        self.board.tree.tick()

    def run_epochs(self, count: int) -> None:
        """Report ``count`` whole epochs."""
        for _ in range(count * self.shape.windows):
            self.step()

    def _living(self) -> list[int]:
        return [rank for rank in range(self.shape.ranks) if rank not in self._lost]

    def _happen(self, epoch: int, position: int) -> None:
        tree, shape = self.board.tree, self.shape
        if position == 0 and epoch == shape.lost_epoch and shape.ranks > 1:
            last = shape.ranks - 1
            self._lost.add(last)
            tree.alert("rank_lost", self.paths[last], "no heartbeat for 30 s")
            tree.set_alive(self.paths[last], alive=False)

    def _report(self, rank: int, epoch: int, done: float) -> NodeReport:
        name, vram, speed = _GPUS[rank % 2 if self.shape.ranks > 1 else 0]
        work = max(1, round(1280 * speed))
        return NodeReport(
            path=self.paths[rank],
            producer=f"rank{rank}",
            metrics=self._metrics(rank, epoch, done, speed),
            work=work,
            tick=self.window,
            epoch=epoch,
            step=(self.window + 1) * 50,
            res=self._res(vram) if self.shape.has_gpus else {},
            host_res=self._host_res() if self._reports_host(rank) else {},
            label=name if self.shape.has_gpus else "CPU",
            device=rank % 8 if self.shape.has_gpus else None,
        )

    def _metrics(self, rank: int, epoch: int, done: float, speed: float) -> dict[str, float]:
        noise = self._rng.gauss(0, 0.03)
        loss = 2.3 * math.exp(-4 * done) + 0.05 + abs(noise) * (1 - done) + 0.01 * (rank % 3)
        living = len(self._living())
        metrics = {
            "loss": loss,
            "throughput": speed * (1.9 + 0.1 * noise),
            "batch_share": 1 / living,
            "compute_only_ms": 12 / speed + noise,
            "data_starve": abs(noise) * 2,
        }
        for number, key in enumerate(self.shape.extra_keys):
            metrics[key] = 1 - math.exp(-(3 + number) * done) + noise / (number + 2)
        if epoch == self.shape.nan_epoch and rank == 0:
            metrics["grad_norm"] = math.nan
        return metrics

    def _res(self, vram: int) -> dict[str, float]:
        util = 88 + self._rng.random() * 10
        used = round(vram * (0.55 + 0.05 * self._rng.random()))
        return {
            "gpu_util": round(util, 1),
            "gpu_util_max": 100.0,
            "vram_alloc": used,
            "vram_alloc_max": round(used * 1.05),
            "vram_total": vram,
            "gpus": 1,
            "power_w": round(180 + 60 * self._rng.random(), 1),
            "temp_c": round(60 + 8 * self._rng.random()),
        }

    def _host_res(self) -> dict[str, float]:
        return {
            "cpu": round(20 + 30 * self._rng.random(), 1),
            "ram_used": round((20 + 4 * self._rng.random()) * _GIB),
            "ram_total": 64 * _GIB,
            "cpus": 32,
        }

    def _reports_host(self, rank: int) -> bool:
        return rank == min(r for r in self._living() if self._hosts[r] == self._hosts[rank])

    def _end_epoch(self, epoch: int, done: float) -> None:
        shape, seconds = self.shape, 2.5 + self._rng.random() / 5
        reports = [
            NodeReport(
                path=self.paths[rank],
                producer=f"rank{rank}",
                metrics=self._metrics(rank, epoch, done, _GPUS[rank % 2][2]),
                work=25_600,
                epoch=epoch,
                epoch_complete=True,
                step=self.window * 50,
            )
            for rank in self._living()
        ]
        self.board.tree.publish(reports)
        root = self.board.tree.current(ROOT) or {}
        metrics, left = root.get("metrics", {}), (shape.epochs - epoch - 1) * seconds
        res = root.get("res", {})
        self.board.set_progress(epoch=epoch + 1, total=shape.epochs, eta=left)
        self.board.add_epoch(
            {
                "epoch": epoch + 1,
                "total": shape.epochs,
                "duration": seconds,
                "eta": left,
                "metrics": {key: metrics.get(key) for key in ("loss", *shape.extra_keys)},
                "resources": {
                    "cpu": res.get("cpu"),
                    "ram_used": res.get("ram_used"),
                    "ram_total": res.get("ram_total"),
                    "gpu": res.get("gpu_util"),
                    "vram_alloc": res.get("vram_alloc"),
                    "vram_total": res.get("vram_total"),
                },
                "gpus": self._gpus(),
            }
        )

    def _gpus(self) -> list[dict[str, Any]]:
        if not self.shape.has_gpus:
            return []
        found = []
        for rank in self._living()[:8]:
            state = self.board.tree.current(self.paths[rank]) or {}
            metrics, res = state.get("metrics", {}), state.get("res", {})
            found.append(
                {
                    "dev": rank,
                    "name": state.get("label"),
                    "util": res.get("gpu_util"),
                    "vram_alloc": res.get("vram_alloc"),
                    "vram_total": res.get("vram_total"),
                    "throughput": metrics.get("throughput"),
                    "chunk": metrics.get("batch_share"),
                    "shard": 25_600,
                }
            )
        return found

    def _describe(self) -> None:
        shape, board = self.shape, self.board
        board.tree.declare("grad_norm", "max")
        board.tree.describe(
            id=f"fake-{shape.seed}",
            label="fake resnet",
            hash="5f1e0c3a9b7d2468",
            total_epochs=shape.epochs,
            started_ts=int(time.time() * 1000),
            mode="nccl-cadence" if shape.ranks > 1 else "solo",
            reports_per_epoch=shape.windows,
        )
        counts = {name: 0 for name, _, _ in _GPUS}
        for rank in range(shape.ranks):
            counts[_GPUS[rank % 2 if shape.ranks > 1 else 0][0]] += 1
        cards = " + ".join(
            f"{count}x {name} ({vram // _GIB}GB)" if count > 1 else f"{name} ({vram // _GIB}GB)"
            for name, vram, _ in _GPUS
            if (count := counts[name])
        )
        board.set_facts(
            label="fake resnet",
            hash="5f1e0c3a9b7d2468",
            hardware="Ryzen 9 (32 threads, 64GB)" + (f" | {cards}" if shape.has_gpus else ""),
            gpus=[
                {"dev": rank, "name": _GPUS[rank % 2][0], "vram_total": _GPUS[rank % 2][1]}
                for rank in range(min(shape.ranks, 8))
                if shape.has_gpus
            ],
        )
        board.set_metadata(
            {
                "optimizer": "AdamW",
                "lr": 3e-4,
                "batch_size": 128,
                "schedule": {"kind": "cosine", "warmup": 500},
                "parameters": {"total": 269_722, "trainable": 269_722, "frozen": 0},
            }
        )
        board.set_svg(_picture("#3a6ea5"))
        if shape.has_gpus:
            board.add_heatmap(_GPUS[0][0], _picture("#c0562f"))
            if shape.ranks > 1:
                board.add_heatmap(_GPUS[1][0], _picture("#b03a2e"))


def _picture(color: str) -> str:
    boxes = "".join(
        f'<rect x="40" y="{20 + 55 * n}" width="140" height="36" rx="6" fill="{color}">'
        f"<title>{name}: 1.23ms</title></rect>"
        f'<text x="110" y="{43 + 55 * n}" fill="#ffffff" font-size="13" text-anchor="middle">'
        f"{name}</text>"
        for n, name in enumerate(_LAYERS)
    )
    return _SVG.format(boxes=boxes)


def serve_board(
    board: RunBoard, *, port: int = 0, host: str = "127.0.0.1", token: str | None = None
) -> PortalServer:
    """Serve a board's portal until the server's ``stop()``."""
    auth, hub, listener = Auth(token, host=host), Hub(board), bound_socket(host, port)
    server = PortalServer(create_app(board, auth=auth, hub=hub), hub, listener)
    server.start()
    return server


def main() -> None:
    """Serve a fake run until interrupted."""
    parser = argparse.ArgumentParser(description="Serve a run that trains nothing.")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--windows", type=int, default=20, help="windows per epoch")
    parser.add_argument("--rate", type=float, default=4.0, help="windows per second")
    parser.add_argument("--skip", type=int, default=0, help="epochs that are over at the start")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default=None)
    parser.add_argument("--cpu", action="store_true", help="a run without GPUs")
    parser.add_argument("--nan", type=int, default=None, help="epoch of a NaN")
    parser.add_argument("--lost", type=int, default=None, help="epoch of a rank's death")
    given = parser.parse_args()
    run = FakeRun(
        FakeRunShape(
            ranks=given.ranks,
            hosts=given.hosts,
            epochs=given.epochs,
            windows=given.windows,
            has_gpus=not given.cpu,
            nan_epoch=given.nan,
            lost_epoch=given.lost,
        )
    )
    server = serve_board(run.board, port=given.port, token=given.token)
    try:
        run.run_epochs(min(given.skip, given.epochs))
        print(f"http://localhost:{server.port}", flush=True)  # noqa: T201 (a command's answer)
        while not run.is_over:
            run.step()
            time.sleep(1 / given.rate)
        run.board.finish("done")
        while True:
            time.sleep(60)
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()


if __name__ == "__main__":
    main()
