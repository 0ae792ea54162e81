"""The checkpoints of a run: when they are due, and what a failed one costs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from flodl.core.errors import CheckpointError, ConfigError
from flodl.engine.background import CpuWorker
from flodl.engine.bundle import find_bundle
from flodl.engine.numbered import keep_last, numbered_stem
from flodl.engine.resume import RunState
from flodl.trainer.config import TrainerConfig, checkpoint_epochs
from flodl.trainer.observers import notify

_logger = logging.getLogger(__name__)


class Checkpoints:
    """Saves a run where it was told to, and takes one up.

    Args:
        config: When, and where to.

    Raises:
        ConfigError: The folder cannot be made or written.
    """

    def __init__(self, config: TrainerConfig) -> None:
        self._config = config
        self._at = frozenset(checkpoint_epochs(config))
        self._stem = None if config.save_path is None else writable_stem(Path(config.save_path))
        self._resumed_from: Path | None = None
        self._worker: CpuWorker | None = None
        self._writing: Future[None] | None = None

    @property
    def file(self) -> Path | None:
        """Where the model goes; ``None`` when nothing is saved."""
        return None if self._stem is None else Path(f"{self._stem}.fdl")

    def resumed(self, state: RunState) -> int:
        """Take up the checkpoint that the run is to go on from; return the epochs it has finished.

        Raises:
            CheckpointError: There is none, it is incomplete, or it does not fit the model.
            ResumeMismatchError: It was made with other data.
        """
        path = self._config.resume_from
        if path is None:
            return 0
        bundle = find_bundle(path)
        epochs = state.load(bundle)
        self._resumed_from = bundle.stem
        _logger.info("going on from %s after %d epochs", bundle.stem, epochs)
        return epochs

    def save(self, state: RunState, epochs_done: int, reason: str = "checkpoint") -> None:
        """Save the state in which the run ends, if it has a place for it.

        Raises:
            CheckpointError: It cannot be written.
        """
        self.close()
        if self._stem is not None:
            state.save(self._stem, epoch=epochs_done, reason=reason)

    def after_epoch(self, state: RunState, epochs_done: int) -> None:
        """Save under a number if that is due; a failure costs this checkpoint, not the run."""
        config = self._config
        every = config.checkpoint_every
        if epochs_done not in self._at and (every is None or epochs_done % every):
            return
        try:
            self._save_numbered(state, epochs_done)
        except CheckpointError as error:
            _failed(epochs_done, error)
        if config.checkpoint_fn is not None:
            notify("checkpoint_fn", config.checkpoint_fn, epochs_done - 1, state.step.model)

    def close(self) -> None:
        """Wait until everything is written, and end the thread that writes."""
        if self._worker is not None:
            self._worker.finish()
            self._worker = None

    def _save_numbered(self, state: RunState, epochs_done: int) -> None:
        if self._stem is None:
            return
        if self._writing is not None:
            self._writing.result()  # one copy in memory is enough
        stem = Path(numbered_stem(self._stem, "epoch", epochs_done - 1))
        write = state.copied(stem, epoch=epochs_done, reason="checkpoint")
        if self._worker is None:
            self._worker = CpuWorker()
        self._writing = self._worker.submit(self._written, write, epochs_done)

    def _written(self, write: Callable[[], None], epochs_done: int) -> None:
        try:
            write()
        except CheckpointError as error:
            _failed(epochs_done, error)
            return
        if self._stem is not None:
            keep_last(self._stem, self._config.checkpoint_keep, spare=self._resumed_from)


def _failed(epochs_done: int, error: CheckpointError) -> None:
    _logger.warning("checkpoint after epoch %d failed, training goes on: %s", epochs_done, error)


def writable_stem(stem: Path) -> Path:
    """Return the path, after checking that its folder can be made and written.

    Raises:
        ConfigError: It cannot.
    """
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        probe = stem.with_name(f".{stem.name}.probe")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"save_path={str(stem)!r}: {stem.parent} cannot be written: {error.strerror}",
            hint="choose a folder that exists or can be made, on a disk with room",
        ) from error
    return stem
