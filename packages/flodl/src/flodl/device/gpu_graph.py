"""A GPU graph: work recorded once and launched again as a whole."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor, nn

from flodl.core.errors import CaptureError, ConfigError

PoolHandle: TypeAlias = Any
"""What torch gives for a pool: opaque, and of another type in each version."""


class CaptureMode(StrEnum):
    """Which CUDA calls of other threads a capture tolerates."""

    GLOBAL = "global"
    THREAD_LOCAL = "thread_local"
    RELAXED = "relaxed"


def gpu_graph_pool_handle() -> PoolHandle:
    """Return a handle of a new memory pool that several graphs may share.

    Graphs that share a pool replay in the order of their capture and never at the same time; a
    later graph may overwrite what an earlier one put out, so copy what crosses between them.
    """
    _require_gpu()
    return torch.cuda.graph_pool_handle()


class GpuGraph:
    """Records the GPU work of a ``with`` block and launches it again with one call.

    Inputs are tensors that keep their place: write new values into them before each replay.
    Outputs keep theirs and change at each replay. The caller keeps what was used alive, or hands
    it to ``keep``.

    Raises:
        CaptureError: There is no GPU (``no_gpu``).
    """

    def __init__(self) -> None:
        _require_gpu()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._device: int | None = None
        self._pool: PoolHandle | None = None
        self._is_capturing = False
        self._used: tuple[Any, ...] = ()

    @property
    def is_captured(self) -> bool:
        """Whether there is something to replay."""
        return self._graph is not None and not self._is_capturing

    @contextlib.contextmanager
    def capture(
        self,
        pool: PoolHandle | None = None,
        mode: CaptureMode = CaptureMode.THREAD_LOCAL,
        stream: torch.cuda.Stream | None = None,
        generators: Sequence[torch.Generator] = (),
    ) -> Iterator[Self]:
        """Record the work of the block; it is not executed.

        Under ``THREAD_LOCAL`` other threads may go on using CUDA, and an illegal call of this one
        still fails. Run the block once before, on the same stream: library handles belong to a
        stream and cannot be made while it captures. Garbage collection is off in the block. When
        the block raises, random numbers go on as if nothing had been tried.

        Args:
            pool: Memory pool to share with other graphs.
            mode: What calls of other threads do.
            stream: Where to capture; by default torch's stream for captures.
            generators: Generators used besides the default one.

        Raises:
            CaptureError: The graph is captured already, or a capture is running.
        """
        if self._graph is not None:
            state = "is being captured" if self._is_capturing else "holds a capture"
            raise CaptureError("misuse", f"capture: this graph {state}", hint="call reset() first")
        if torch.cuda.is_current_stream_capturing():
            raise CaptureError("misuse", "capture: another capture is running on this stream")
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        device = torch.cuda.current_device()
        random, previous = RandomState(device, generators), torch.cuda.current_stream()
        random.save()
        self._graph, self._is_capturing = graph, True
        try:
            with (
                no_collection(),
                torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode=mode.value),
            ):
                yield self
        except BaseException:
            self._graph = None
            del graph
            torch.cuda.set_stream(previous)  # torch 2.11 leaves the capture's when its end fails
            recover_from_failed_capture(device, random)
            raise
        finally:
            self._is_capturing = False
        self._device = device
        self._pool = graph.pool()

    def replay(self) -> None:
        """Launch the recorded work on the current stream.

        Raises:
            CaptureError: Nothing is captured, or it was captured on another device.
        """
        if self._graph is None or self._is_capturing:
            raise CaptureError("misuse", "replay: nothing is captured", hint="capture first")
        if torch.cuda.current_device() != self._device:
            raise CaptureError(
                "misuse",
                f"replay on cuda:{torch.cuda.current_device()}: captured on cuda:{self._device}",
                hint="replay inside `with torch.cuda.device(...)`",
            )
        self._graph.replay()

    def reset(self) -> None:
        """Forget the capture and give its memory back.

        Raises:
            CaptureError: The graph is being captured.
        """
        if self._is_capturing:
            raise CaptureError("misuse", "reset: the graph is being captured")
        if self._graph is not None:
            self._graph.reset()
        self._graph = self._pool = self._device = None
        self._used = ()

    def keep(self, *used: Any) -> None:
        """Keep objects alive until ``reset``: those that hold the tensors the work uses.

        A replay reads and writes places in memory; were such a tensor gone, its place would
        belong to another.
        """
        self._used += used

    def pool(self) -> PoolHandle:
        """Return the handle of the memory pool, for graphs that are to share it.

        Raises:
            CaptureError: Nothing is captured.
        """
        if self._pool is None:
            raise CaptureError("misuse", "pool: nothing is captured", hint="capture first")
        return self._pool


class RandomState:
    """States of a GPU's default random generator and of others, to be saved and put back.

    Args:
        device: The GPU.
        generators: The others.
    """

    def __init__(
        self, device: torch.device | int, generators: Sequence[torch.Generator] = ()
    ) -> None:
        self._device = device
        self._generators = generators
        self._states: list[Tensor] = []

    def save(self) -> None:
        """Remember the present states."""
        others = [generator.get_state() for generator in self._generators]
        self._states = [torch.cuda.get_rng_state(self._device), *others]

    def has_moved(self) -> bool:
        """Return whether random numbers were drawn since the states were saved."""
        before = self._states
        now = [torch.cuda.get_rng_state(self._device), *[g.get_state() for g in self._generators]]
        return not all(map(torch.equal, before, now))

    def restore(self) -> None:
        """Go back to the states that were saved last."""
        torch.cuda.set_rng_state(self._states[0], self._device)
        for generator, state in zip(self._generators, self._states[1:], strict=True):
            generator.set_state(state)


def gpu_graph_capture(
    fn: Callable[[], Any],
    warmup: int = 3,
    pool: PoolHandle | None = None,
    mode: CaptureMode = CaptureMode.THREAD_LOCAL,
    restore: Sequence[nn.Module | torch.optim.Optimizer | Tensor] = (),
) -> GpuGraph:
    """Run ``fn`` ``warmup`` times, capture it, and return the graph, which keeps ``fn`` alive.

    Args:
        fn: The work; it reads and writes tensors that keep their place.
        warmup: Runs before the capture, on the stream of the capture.
        pool: Memory pool to share with other graphs.
        mode: What calls of other threads do during the capture.
        restore: What the warm-up may change and gets back afterwards, with random numbers.
            Optimizers must have their state already.

    Raises:
        CaptureError: There is no GPU.
        ConfigError: Something in ``restore`` cannot be restored.
    """
    graph = GpuGraph()
    tensors = [tensor for item in restore for tensor in _tensors_of(item)]
    saved = [tensor.detach().clone() for tensor in tensors]
    random_state = torch.cuda.get_rng_state()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warmup):
            fn()
        with torch.no_grad():
            for tensor, value in zip(tensors, saved, strict=True):
                tensor.copy_(value)
    torch.cuda.current_stream().wait_stream(side)
    if restore:
        torch.cuda.set_rng_state(random_state)
    with graph.capture(pool, mode, side):
        fn()
    graph.keep(fn, *restore)
    return graph


def recover_from_failed_capture(device: int, random: RandomState) -> None:
    """Make a process usable after a capture failed, and let random numbers go on from a state.

    A failed capture that drew random numbers leaves the generator in capture mode; ending any
    capture well is what clears it.

    Raises:
        RuntimeError: The device itself is lost.
    """
    with torch.cuda.device(device):
        dummy = torch.zeros(1, device="cuda")
        with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
            dummy.add_(1)
        random.restore()
        torch.cuda.synchronize(device)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage in the block: what that runs is no part of the work.

    A collected CUDA object would also make a call that invalidates a capture.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _tensors_of(item: object) -> list[Tensor]:
    if isinstance(item, Tensor):
        return [item]
    if isinstance(item, nn.Module):
        return [*item.parameters(), *item.buffers()]
    if isinstance(item, torch.optim.Optimizer):
        parameters = [p for group in item.param_groups for p in group["params"]]
        if not all(item.state.get(p) for p in parameters):
            raise ConfigError(
                f"restore={type(item).__name__}: it has no state yet, so there is none to restore",
                hint="take one step before, or capture a flodl.engine.TrainStep",
            )
        return [
            value
            for state in item.state.values()
            for value in state.values()
            if isinstance(value, Tensor)
        ]
    raise ConfigError(
        f"restore={type(item).__name__}: only modules, optimizers and tensors can be restored"
    )


def _require_gpu() -> None:
    if not torch.cuda.is_available():
        raise CaptureError("no_gpu", "torch sees no CUDA device in this process")
