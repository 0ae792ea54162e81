"""What one rank does for all: evaluation, checkpoints, the final state."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flodl.checkpoint import save_checkpoint
from flodl.core.errors import FlodlError
from flodl.data import DataLoader
from flodl.distributed.cluster.orphan import note_orphan, orphan_file
from flodl.distributed.protocol.messages import CallbackDone, RunCallback
from flodl.distributed.worker.checkpoints.saving import Saver, Saving, entries
from flodl.distributed.worker.failure import failure_of
from flodl.engine.background import CpuWorker
from flodl.engine.drafts import described
from flodl.engine.evaluate import EvalContext, evaluate

if TYPE_CHECKING:
    from flodl.distributed.averaging.plane import Plane
    from flodl.distributed.worker.identity import Identity
    from flodl.distributed.worker.job import Job
    from flodl.distributed.worker.worker import Worker

_FAREWELL_S = 10.0


class Callbacks:
    """Runs what the controller asks for, on the values that all ranks share.

    Args:
        job: The user's functions.
        worker: The rank's counters, model, optimizer and step.
        plane: Holds the shared values.
        identity: Who this rank is, and where files go that no path of the user names.
        dataset_signature: Tells the data that the run is over.
    """

    def __init__(
        self,
        job: Job,
        worker: Worker,
        plane: Plane,
        identity: Identity,
        dataset_signature: Callable[[], str],
    ) -> None:
        self._job = job
        self._model = worker.model
        self._plane = plane
        self._device = identity.device
        self._run_dir = identity.run_dir
        self._saver = Saver(job, worker, plane, dataset_signature)
        self._worker: CpuWorker | None = None
        self._writing: deque[Future[CallbackDone]] = deque()

    def run(self, callback: RunCallback, work: dict[str, Any] | None = None) -> CallbackDone | None:
        """Run one callback; what it raises is told, not raised.

        Args:
            callback: What to do.
            work: The leases in hand, for a checkpoint that keeps them.

        Returns:
            How it ended; ``None`` where files are being written, and :meth:`finished` will tell.
        """
        started = time.perf_counter()
        try:
            saving, found = self._begun(callback, work)
        except Exception as error:  # noqa: BLE001 - of the user, who is told
            return _done(callback, _ms_since(started), ok=False, error=_text(error, callback))
        ms = _ms_since(started)
        if saving is None:
            return _done(callback, ms, **found)
        if self._worker is None:
            self._worker = CpuWorker()
        future = self._worker.submit(_written, callback, saving, ms)
        assert future is not None  # any number may wait
        self._writing.append(future)
        return None

    def finished(self) -> list[CallbackDone]:
        """Return how callbacks have ended whose files were being written."""
        found = []
        while self._writing and self._writing[0].done():
            found.append(self._writing.popleft().result())
        return found

    def keep(self, stem: Path) -> None:
        """Have a checkpoint stay, as a rank that is started again goes on from it."""
        self._saver.resumed_from = stem

    def close(self) -> None:
        """End the thread that writes, once it has; one that takes long is left to itself."""
        if self._worker is not None:
            with contextlib.suppress(TimeoutError):
                self._worker.finish(_FAREWELL_S)

    def save_orphan(self, version: int) -> Path:
        """Save the shared values beside the checkpoint, for a run that lost its controller.

        Raises:
            CheckpointError: They cannot be written.
        """
        file = orphan_file(self._job.save_path, self._run_dir)
        with self._plane.consensus.swapped():
            save_checkpoint(
                file, self._model, meta={"window": version, "save_reason": "controller_lost"}
            )
        note_orphan(self._run_dir, file)
        return file

    def _begun(
        self, callback: RunCallback, work: dict[str, Any] | None
    ) -> tuple[Saving | None, dict[str, Any]]:
        """Do what training must wait for; return what is left to write, or what was found."""
        match callback.kind:
            case "seal":
                return self._saver.sealing(callback), {}
            case "checkpoint":
                wait(self._writing)  # one copy in memory is enough
                return self._saver.checkpoint(callback, work), {}
            case "eval":
                with self._plane.consensus.swapped():
                    return None, self._evaluate(callback)
            case "final":
                with self._plane.consensus.swapped():
                    return None, self._final(callback)

    def _evaluate(self, callback: RunCallback) -> dict[str, Any]:
        job = self._job
        if job.eval_fn is None or job.eval_dataset is None:
            raise FlodlError("an evaluation was asked for, and this rank has no eval_fn")
        loader = DataLoader(
            job.eval_dataset,
            batch_size=job.batch_size,
            device=self._device,
            shuffle=False,
            drop_last=False,
            names=job.names,
        )
        try:
            if callback.parts > 1:
                loader.partition(callback.part, callback.parts, uneven="allow")
            samples = loader.num_samples
            context = EvalContext(epoch=callback.epoch, device=self._device)
            value = evaluate(self._model, loader, job.eval_fn, context)
        finally:
            loader.close()
        return {"value": value, "samples": samples}

    def _final(self, callback: RunCallback) -> dict[str, Any]:
        file = Path(callback.stem or self._run_dir / "final").with_suffix(".fdl")
        save_checkpoint(file, self._model, meta=callback.meta)
        return {"files": entries(file.with_suffix(""), {".fdl": described(file)})}


def _written(callback: RunCallback, saving: Saving, ms: float) -> CallbackDone:
    try:
        return _done(callback, ms, files=saving())
    except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on without these files
        return _done(callback, ms, ok=False, error=_text(error, callback))


def _done(callback: RunCallback, ms: float, **found: Any) -> CallbackDone:
    return CallbackDone(
        kind=callback.kind,
        epoch=callback.epoch,
        attempt=callback.attempt,
        part=callback.part,
        stem=callback.stem,
        ms=ms,
        **found,
    )


def _text(error: Exception, callback: RunCallback) -> str:
    """Return what people are told: a known failure in words, anything else with its traceback."""
    if isinstance(error, FlodlError):
        return str(error)
    return failure_of(error, epoch=callback.epoch).traceback


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
