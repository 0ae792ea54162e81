"""Times of both models in turns, so that whatever else the machine does meets both alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ddp_bench.transformer.pairs import Pair
from flodl.data import Batch
from flodl.engine.step import TrainStep

Mode = Literal["forward", "step", "captured"]
_LEAST_SECONDS = 0.05
_CELL_SECONDS = 4.0
_WARM_STEPS = 20
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1}


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """One cell: how long both take, and flodl-hf over the reference.

    Attributes:
        mode: A forward pass; a training step, both eagerly; or one that flodl-hf has captured
            beside the reference's eager one.
        ratio: Median over rounds.
        low: First quartile of the ratio over rounds.
        high: Third quartile.
    """

    family: str
    mode: Mode
    batch: int
    length: int
    reference_ms: float
    ours_ms: float
    ratio: float
    low: float
    high: float
    rounds: int


def measure(pair: Pair, mode: Mode, batch: int, length: int, *, rounds: int) -> Timing:
    """Time one cell, after both gave the same numbers.

    Args:
        pair: Both models.
        mode: What is timed.
        batch: Texts.
        length: Tokens of the longest.
        rounds: At most; a cell whose rounds are slow gets fewer, two or more.

    Raises:
        AssertionError: They do not give the same numbers.
    """
    parameter = next(pair.ours.parameters())
    device = parameter.device
    data = pair.batch(batch, length, device)
    if mode == "forward":
        _check_equal(pair, data, _TOLERANCE[parameter.dtype])
    calls = {
        "reference": _call(pair.reference, mode, data, is_ours=False),
        "ours": _call(pair.ours, mode, data, is_ours=True),
    }
    once = {name: _seconds(call, 1, device) for name, call in calls.items()}
    repeats = max(1, round(_LEAST_SECONDS / max(once["ours"], 1e-6)))
    rounds = max(2, min(rounds, int(_CELL_SECONDS / (repeats * sum(once.values())))))
    # A call that is long enough by itself was a round.
    found = {name: [once[name]] if repeats == 1 else [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for number in range(len(found["ours"]), rounds):
            order = list(calls.items())
            for name, call in order if number % 2 else reversed(order):
                found[name].append(_seconds(call, repeats, device))
    finally:
        gc.enable()
    ratios = [a / b for a, b in zip(found["ours"], found["reference"], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return Timing(
        family=pair.family,
        mode=mode,
        batch=batch,
        length=length,
        reference_ms=statistics.median(found["reference"]) * 1000,
        ours_ms=statistics.median(found["ours"]) * 1000,
        ratio=statistics.median(ratios),
        low=low,
        high=high,
        rounds=rounds,
    )


def _check_equal(pair: Pair, data: Mapping[str, Tensor], tolerance: float) -> None:
    pair.reference.eval()
    pair.ours.eval()
    with torch.inference_mode():
        theirs, ours = pair.logits(data)
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def _call(
    model: nn.Module, mode: Mode, data: Mapping[str, Tensor], *, is_ours: bool
) -> Callable[[], object]:
    given = {name: data[name] for name in ("input_ids", "attention_mask")}
    if mode == "forward":
        model.eval()

        def forward() -> object:
            with torch.inference_mode():
                return model(**given)

        return forward
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
    if mode == "captured" and is_ours:
        return _captured(model, optimizer, data)

    def step() -> object:
        output = model(**given)
        logits = output if is_ours else output.logits
        loss = nn.functional.cross_entropy(logits.float(), data["labels"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    step()  # makes the optimizer's state
    return step


def _captured(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Mapping[str, Tensor]
) -> Callable[[], object]:
    """Return the same step as one CUDA graph, once it runs as such.

    Raises:
        CaptureError: It cannot be captured.
    """
    batch = Batch(list(data.values()), list(data))

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
        return nn.functional.cross_entropy(logits.float(), batch["labels"])

    step = TrainStep(loss, model, optimizer, capture="require")
    for _ in range(_WARM_STEPS):
        step(batch)
        if step.mode == "captured":
            return lambda: step(batch)
    raise AssertionError(f"still {step.mode} after {_WARM_STEPS} steps")


def _seconds(call: Callable[[], object], repeats: int, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - started) / repeats
