"""The full state of a run on one device: saved, and taken up again as if nothing had been."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flodl.checkpoint import (
    checkpoint_info,
    load_checkpoint,
    load_state_file,
    save_checkpoint,
)
from flodl.checkpoint.optim import state_document
from flodl.core.errors import CheckpointFormatError, ResumeMismatchError
from flodl.data import DataLoader
from flodl.engine.bundle import Bundle, load_model, read_tensors, write_bundle
from flodl.engine.config import AnyScheduler
from flodl.engine.copies import PartCopies, model_part
from flodl.engine.step import TrainStep
from flodl.nn.schedulers.base import is_reactive

_MODEL, _OPTIMIZER, _RANK, _SCHEDULE = ".fdl", ".optim", ".rank0.fdl", ".schedule.optim"


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run on one device goes on from.

    Attributes:
        step: The step, with model and optimizer.
        loader: Its training loader.
        device: The device.
        seed: The run's seed.
        scheduler: Its schedule.
    """

    step: TrainStep
    loader: DataLoader
    device: torch.device
    seed: int
    scheduler: AnyScheduler | None = None

    def save(self, stem: Path, *, epoch: int, reason: str) -> None:
        """Write the bundle ``stem``; it takes the place of the one before.

        Args:
            stem: Path that the names of its files begin with.
            epoch: Epochs finished.
            reason: Why it is written.

        Raises:
            CheckpointError: It cannot be written.
        """
        parts, meta = self._parts(epoch, reason)
        write_bundle(stem, parts.writers(), meta)

    def copied(self, stem: Path, *, epoch: int, reason: str) -> Callable[[], None]:
        """Copy the state as it is now; return what writes it, on any thread.

        Raises:
            CheckpointError: Some of it cannot be stored.
        """
        parts, meta = self._parts(epoch, reason)
        parts.copy()

        def write() -> None:
            write_bundle(stem, parts.writers(), meta)

        return write

    def _parts(self, epoch: int, reason: str) -> tuple[PartCopies, dict[str, Any]]:
        step, scheduler, parts = self.step, self.scheduler, PartCopies()
        counted = {"epoch": epoch, "global_step": step.global_step}
        parts.add(_MODEL, *model_part(step.model, counted))
        parts.add_state(_OPTIMIZER, state_document(step.optimizer))
        tensors, plain = random_states(self.device)
        own = {
            "random": plain,
            "step": step.state_dict(),
            "loader": self.loader.state_dict(),
        }
        parts.add(
            _RANK,
            tensors,
            lambda file, kept: save_checkpoint(file, kept, hash="", kind="rank", meta=own),
        )
        if scheduler is not None and has_state(scheduler):
            parts.add_state(_SCHEDULE, state_document(scheduler))  # type: ignore[arg-type] # those with state are of the protocol
        meta = {
            **counted,
            "seed": self.seed,
            "save_reason": reason,
            "world": {"members": 1, "devices": [str(self.device)]},
            "versions": {"flodl": flodl_version(), "torch": str(torch.__version__)},
        }
        return parts, meta

    def load(self, bundle: Bundle) -> int:
        """Take up a bundle, and return how many epochs are finished.

        Raises:
            CheckpointError: A part does not fit; the run must not go on.
            ResumeMismatchError: The data are others, or in another order.
        """
        step = self.step
        if "ledger" in bundle.meta:
            return self._load_of_ranks(bundle)
        model, optimizer, rank = [_known(bundle, s) for s in (_MODEL, _OPTIMIZER, _RANK)]
        meta = checkpoint_info(rank).meta
        self.loader.load_state_dict(meta["loader"])
        load_checkpoint(model, step.model, strict=True)
        load_state_file(step.optimizer, optimizer)
        schedule = bundle.part(_SCHEDULE)
        if schedule is not None and self.scheduler is not None:
            load_state_file(self.scheduler, schedule)  # type: ignore[arg-type] # as in save
        step.load_state_dict(meta["step"])
        restore_random_states(self.device, read_tensors(rank), meta["random"])
        return int(bundle.meta["epoch"])

    def _load_of_ranks(self, bundle: Bundle) -> int:
        """Take up what several ranks have saved between two epochs."""
        opened = [account for account in bundle.meta["ledger"] if account["committed"]]
        if opened:
            raise ResumeMismatchError(
                f"checkpoint {bundle.stem}: several ranks have saved it in the middle of epoch "
                f"{opened[0]['epoch']}, which one device cannot go on with",
                hint="go on with .ranks(1), or from a checkpoint at the end of an epoch",
            )
        step = self.step
        load_model(bundle, step.model)
        load_state_file(step.optimizer, _known(bundle, _OPTIMIZER))
        schedule = bundle.part(_SCHEDULE)
        if schedule is not None and self.scheduler is not None:
            load_state_file(self.scheduler, schedule)  # type: ignore[arg-type] # as in save
        step.load_state_dict(
            {
                "global_step": bundle.meta["global_step"],
                "batches": bundle.meta["global_step"],
                "lr_scale": bundle.meta.get("lr_scale", 1.0),
                "scaler": None,
            }
        )
        step.set_lr_scale(1.0)
        epochs = [int(account["epoch"]) for account in bundle.meta["ledger"]]
        return min(epochs, default=int(bundle.meta["next_epoch"]))


def _known(bundle: Bundle, suffix: str) -> Path:
    part = bundle.part(suffix)
    if part is None:
        raise CheckpointFormatError(
            f"checkpoint {bundle.stem}: it has no part {bundle.stem.name}{suffix}, which a run on "
            "one device goes on from"
        )
    return part


def flodl_version() -> str:
    """Return the version that is installed."""
    try:
        return version("flodl")
    except PackageNotFoundError:
        return "unknown"  # run from a source tree that is not installed


def has_state(scheduler: AnyScheduler) -> bool:
    """Return whether a schedule is more than a function of the step."""
    return isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler) or (
        is_reactive(scheduler) and hasattr(scheduler, "state_dict")
    )


def random_states(device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the states of all random generators: tensors, and plain values."""
    tensors = {"torch": torch.get_rng_state()}
    if device.type == "cuda":
        tensors["cuda"] = torch.cuda.get_rng_state(device)
    version_, keys, gauss = random.getstate()
    plain: dict[str, Any] = {"python": [version_, list(keys), gauss]}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        _, array, position, has_gauss, cached = numpy.random.get_state()
        plain["numpy"] = [array.tolist(), int(position), int(has_gauss), float(cached)]
    return tensors, plain


def restore_random_states(
    device: torch.device, tensors: dict[str, Tensor], plain: dict[str, Any]
) -> None:
    """Put the states of all random generators back, as far as they were saved."""
    torch.set_rng_state(tensors["torch"])
    if device.type == "cuda" and "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"], device)
    version_, keys, gauss = plain["python"]
    random.setstate((version_, tuple(keys), gauss))
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in plain:
        array, position, has_gauss, cached = plain["numpy"]
        numpy.random.set_state(
            ("MT19937", numpy.array(array, dtype="uint32"), position, has_gauss, cached)
        )
