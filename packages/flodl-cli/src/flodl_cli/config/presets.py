"""The setting blocks of a manifest: how they merge, and the flags they become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

BLOCKS = ("ddp", "training", "output", "options")

Blocks: TypeAlias = Mapping[str, Mapping[str, Any] | None]

_FLAGS: tuple[tuple[str, str, str], ...] = (
    ("ddp", "mode", "--mode"),
    ("ddp", "policy", "--policy"),
    ("ddp", "backend", "--backend"),
    ("ddp", "anchor", "--anchor"),
    ("ddp", "max_anchor", "--max-anchor"),
    ("ddp", "overhead_target", "--overhead-target"),
    ("ddp", "divergence_threshold", "--divergence-threshold"),
    ("ddp", "max_batch_diff", "--max-batch-diff"),
    ("ddp", "max_grad_norm", "--max-grad-norm"),
    ("ddp", "snapshot_timeout", "--snapshot-timeout"),
    ("ddp", "checkpoint_every", "--checkpoint-every"),
    ("ddp", "progressive", "--progressive"),
    ("ddp", "speed_hint", "--speed-hint"),
    ("ddp", "partition_ratios", "--partition-ratios"),
    ("ddp", "lr_scale_ratio", "--lr-scale-ratio"),
    ("ddp", "timeline", "--timeline"),
    ("training", "epochs", "--epochs"),
    ("training", "batch_size", "--batch-size"),
    ("training", "lr", "--lr"),
    ("training", "seed", "--seed"),
    ("training", "batches_per_epoch", "--batches"),
    ("output", "dir", "--output"),
    ("output", "monitor", "--monitor"),
    ("output", "timeline", "--timeline"),
)
"""Block, key and flag, in the order in which the flags are passed."""

_SWITCHES = ("--timeline",)


def blocks_of(data: Mapping[str, Any]) -> Blocks:
    """The setting blocks among the keys of a manifest or of a command, ``null`` ones included."""
    return {name: data[name] for name in BLOCKS if name in data}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid on ``base``: maps merge, everything else is replaced, ``None`` included.

    A key keeps the position of the layer that had it first.
    """
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def flags(blocks: Blocks) -> tuple[str, ...]:
    """The arguments that pass ``blocks`` on to a program; ``None`` passes nothing."""
    words: list[str] = []
    for block, key, flag in _FLAGS:
        value = (blocks.get(block) or {}).get(key)
        if flag in _SWITCHES:
            if value is True and flag not in words:
                words.append(flag)
        elif value is not None:
            words += [flag, _spell(value)]
    for name, value in (blocks.get("options") or {}).items():
        words += _option(f"--{name}", value)
    return tuple(words)


def contradiction(blocks: Blocks) -> str | None:
    """What in the merged blocks cannot stand together, or ``None``."""
    ddp = blocks.get("ddp") or {}
    both = [key for key in ("policy", "backend") if ddp.get(key) is not None]
    if ddp.get("mode") is not None and both:
        return f"mode: {ddp['mode']} already says {' and '.join(both)}: keep one way to say it"
    if ddp.get("policy") == "async" and ddp.get("backend") == "nccl":
        return "policy: async with backend: nccl does not exist: use cpu-async or nccl-cadence"
    return None


def settings(blocks: Blocks) -> dict[str, str]:
    """Every value that is set, as ``block.key`` and its text, for people to read."""
    return dict(_settings(blocks))


def _settings(blocks: Blocks) -> Iterator[tuple[str, str]]:
    for block, values in blocks.items():
        for key, value in (values or {}).items():
            if value is not None:
                yield f"{block}.{key}", _spell(value)


def _option(flag: str, value: Any) -> list[str]:
    match value:
        case None | False:
            return []
        case True:
            return [flag]
        case list():
            return [word for each in value for word in (flag, _spell(each))]
        case _:
            return [flag, _spell(value)]


def _spell(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case list():
            return ",".join(_spell(each) for each in value)
        case {"slow_rank": rank, "ratio": ratio}:
            return f"{rank}:{ratio}"
        case _:
            return str(value)
