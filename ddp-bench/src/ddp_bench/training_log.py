"""``training.log``: a run's epochs as lines that people read and :func:`parse_log` reads back."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from ddp_bench.errors import LogFormatError

_NUMBER = r"[-+]?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf|nan)"
_EPOCH = re.compile(r"epoch (?P<epoch>\d+): (?P<fields>.+)")
_FIELD = re.compile(rf"(?P<name>[^=,]+)=(?P<value>{_NUMBER})(?P<unit>s?)")
_FINAL = re.compile(rf"final eval=(?P<value>{_NUMBER})")
_TRAIN_ONLY = re.compile(rf"# train_only: (?P<train>{_NUMBER})s \(eval: (?P<eval>{_NUMBER})s\)")
_TOTAL = re.compile(rf"# total: (?P<total>{_NUMBER})s \(\d+m \d\ds\)")
_RANK = re.compile(r"# (?P<text>(?:gpu|cpu) r\d+ \[.+\]: .*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEpoch:
    """One epoch's line."""

    epoch: int
    """0-based."""
    loss: float
    train_s: float
    evaluation: float | None = None
    eval_s: float | None = None
    scalars: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingLog:
    """All that a training log says."""

    ranks: tuple[str, ...]
    """A line on each rank's device: ``cpu r0 [host:cpu]: name``."""
    epochs: tuple[LogEpoch, ...]
    final_eval: float | None
    train_only_s: float
    eval_s: float
    total_s: float


def format_log(log: TrainingLog) -> str:
    """Return the text of a training log.

    Losses keep six decimals, metrics four, seconds one; an evaluation below 0.01 keeps four
    significant digits, so that a small error does not read as zero.
    """
    lines = [f"# {rank}" for rank in log.ranks]
    lines += [_epoch_line(epoch) for epoch in log.epochs]
    if log.final_eval is not None:
        lines.append(f"final eval={_metric(log.final_eval)}")
    whole = round(log.total_s)
    lines.append(f"# train_only: {log.train_only_s:.1f}s (eval: {log.eval_s:.1f}s)")
    lines.append(f"# total: {log.total_s:.1f}s ({whole // 60}m {whole % 60:02d}s)")
    return "\n".join(lines) + "\n"


def parse_log(text: str, *, source: str = "training.log") -> TrainingLog:
    """Return what a training log says.

    Raises:
        LogFormatError: A line is not of the documented form, or the closing lines are missing.
    """
    ranks: list[str] = []
    epochs: list[LogEpoch] = []
    final_eval = train_only = evaluating = total = None
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _RANK.fullmatch(line):
            ranks.append(match["text"])
        elif match := _EPOCH.fullmatch(line):
            epochs.append(_epoch(int(match["epoch"]), match["fields"], f"{source}:{number}"))
        elif match := _FINAL.fullmatch(line):
            final_eval = float(match["value"])
        elif match := _TRAIN_ONLY.fullmatch(line):
            train_only, evaluating = float(match["train"]), float(match["eval"])
        elif match := _TOTAL.fullmatch(line):
            total = float(match["total"])
        else:
            _reject(f"{source}:{number}", f"{line!r} is no line of a training log")
    if train_only is None or evaluating is None or total is None:
        _reject(source, "it ends without its '# train_only' and '# total' lines")
    return TrainingLog(
        ranks=tuple(ranks),
        epochs=tuple(epochs),
        final_eval=final_eval,
        train_only_s=train_only,
        eval_s=evaluating,
        total_s=total,
    )


def _epoch_line(epoch: LogEpoch) -> str:
    fields = [f"loss={epoch.loss:.6f}"]
    if epoch.evaluation is not None:
        fields.append(f"eval={_metric(epoch.evaluation)}")
    fields += [f"{name}={_metric(value)}" for name, value in epoch.scalars.items()]
    if epoch.eval_s is None:
        fields.append(f"time={epoch.train_s:.1f}s")
    else:
        fields += [f"train={epoch.train_s:.1f}s", f"eval_time={epoch.eval_s:.1f}s"]
    return f"epoch {epoch.epoch}: {', '.join(fields)}"


def _metric(value: float) -> str:
    return f"{value:.4f}" if abs(value) >= 0.01 or value == 0 else f"{value:.4g}"


def _epoch(epoch: int, fields: str, place: str) -> LogEpoch:
    values: dict[str, float] = {}
    for part in fields.split(", "):
        match = _FIELD.fullmatch(part)
        if match is None:
            _reject(place, f"{part!r} is no name=number")
        values[match["name"]] = float(match["value"])
    loss, evaluation = values.pop("loss", None), values.pop("eval", None)
    alone, training = values.pop("time", None), values.pop("train", None)
    eval_s = values.pop("eval_time", None)
    seconds = training if alone is None else alone
    if loss is None or seconds is None:
        _reject(place, "an epoch needs loss= and train= or time=")
    return LogEpoch(
        epoch=epoch,
        loss=loss,
        train_s=seconds,
        evaluation=evaluation,
        eval_s=eval_s,
        scalars=values,
    )


def _reject(place: str, reason: str) -> NoReturn:
    raise LogFormatError(f"{place}: {reason}", hint="it was edited or cut off; run the cell again")
