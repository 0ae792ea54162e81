"""One process of the suite: builds one arm of one model, then trains epochs as it is told to.

Reads one JSON object a line from standard input, writes one a line to standard output:

- the task, and with it the first epoch: answered by ``{"ready": ...}``;
- ``{"policy": "step", "epochs": 4}``: answered by ``{"epochs": [...], "memory": ...}``;
- ``{"end": true}``: answered by ``{"facts": ...}``.

Whatever fails is answered by ``{"error": ...}``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO

import psutil
import torch

from ddp_bench.speed.arms import BY_NAME
from ddp_bench.speed.turns import Epoch, Finished, Turn, Turns
from ddp_bench.speed.workload import Task, Workload, apply_settings

FIRST_LOSSES = 20


class Conversation:
    """Turns the parent's requests into turns, and epochs into its answers.

    Args:
        requests: Lines of the parent.
        answers: Where answers go.
        device: Of the model.
    """

    def __init__(self, requests: TextIO, answers: TextIO, device: torch.device) -> None:
        self._requests = requests
        self._answers = answers
        self._device = device
        self._epochs: list[Epoch] = []
        self.facts: dict[str, Any] = {}

    def turns(self) -> Iterator[Turn]:
        """Yield the first turn, then those of each request; ends with the parent's last."""
        yield Turn(policy="step", keep=FIRST_LOSSES)
        self.answer({"ready": {**dataclasses.asdict(self._epochs[0]), **self.facts}})
        for line in self._requests:
            request = json.loads(line)
            if request.get("end"):
                return
            self._epochs.clear()
            if request.get("reset_memory"):
                self._reset_memory()
            for _ in range(request["epochs"]):
                yield Turn(policy=request["policy"])
            epochs = [dataclasses.asdict(epoch) for epoch in self._epochs]
            self.answer({"epochs": epochs, "memory": self._memory()})

    def keep(self, epoch: Epoch) -> None:
        """Take an epoch."""
        self._epochs.append(epoch)

    def answer(self, message: dict[str, Any]) -> None:
        """Send one line to the parent."""
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()

    def _reset_memory(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)

    def _memory(self) -> dict[str, float | None]:
        is_gpu, mega = self._device.type == "cuda", 2**20
        return {
            "vram_mb": torch.cuda.max_memory_allocated(self._device) / mega if is_gpu else None,
            "vram_reserved_mb": (
                torch.cuda.max_memory_reserved(self._device) / mega if is_gpu else None
            ),
            "rss_mb": psutil.Process().memory_info().rss / mega,
        }


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer the parent until it ends the conversation."""
    started = time.perf_counter()
    task = Task(**json.loads(requests.readline()))
    conversation = Conversation(requests, answers, torch.device(task.device))
    try:  # frameworks are imported by the arms that need them: one that is broken breaks no other
        settings = apply_settings(task)
        workload = Workload(task)
        conversation.facts |= {
            "settings": settings,
            "batch_size": workload.batch_size,
            "batches_per_epoch": len(workload.batches),
            "param_count": sum(p.numel() for p in workload.plain().parameters()),
            "build_s": time.perf_counter() - started,
        }
        _drive(workload, conversation)
        conversation.answer({"facts": conversation.facts})
    except Exception as error:  # noqa: BLE001 - the parent keeps the row with the reason
        conversation.answer({"error": f"{type(error).__name__}: {error}"})


def _drive(workload: Workload, conversation: Conversation) -> None:
    arm = BY_NAME[workload.task.arm]
    turns = Turns(conversation.turns(), conversation.keep, workload.device)
    with contextlib.suppress(Finished):
        if arm.name == "lightning":
            from ddp_bench.speed import lightning_arm

            lightning_arm.drive(workload, turns)
        elif arm.side in ("flodl", "trial") and arm.name != "flodl-graph":
            from ddp_bench.speed import flodl_arms

            flodl_arms.drive(workload, turns, conversation.facts)
        else:
            from ddp_bench.speed import torch_arms

            torch_arms.drive(workload, turns)


def main() -> None:
    """Serve over the standard streams; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
