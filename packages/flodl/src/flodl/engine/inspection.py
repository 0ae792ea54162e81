# ruff: noqa: SLF001 - schemas and versions of tensors have no public names
"""Looking at one eager step for what a captured graph could not repeat."""

from __future__ import annotations

import builtins
import datetime
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from flodl.device.gpu_graph import no_collection
from flodl.engine.fallback import CaptureReason, ReasonCode, user_location
from flodl.engine.outside import is_foreign

_READS = {"_local_scalar_dense", "equal", "is_nonzero", "_ctc_loss", "_linalg_check_errors"}
_DYNAMIC = {
    "nonzero",
    "masked_select",
    "unique_dim",
    "_unique2",
    "unique_consecutive",
    "bincount",
    "histogram",
    "segment_reduce",
}
_COMPILER = ("torch._dynamo.convert_frame", "torch._inductor", "tempfile")
_CLOCKS = {
    *(name + end for name in ("time", "monotonic", "perf_counter") for end in ("", "_ns")),
    *("process_time", "thread_time", "now", "today", "utcnow", "localtime", "gmtime"),
}
_LOOKUPS = {"globals", "eval", "exec"}
_MASKED = {"index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"}


class StepInspector(TorchDispatchMode):
    """Watches every operation of a step while it runs eagerly, and changes none.

    Args:
        device: The device of the model.
        generators: Random generators that the capture knows besides the default one.
    """

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device_type = device.type
        self._generators = {g._cdata for g in generators}  # type: ignore[attr-defined] # not in the stubs
        self._made: set[int] = set()
        self.reasons: list[CaptureReason] = []
        self.read: set[int] = set()
        """Addresses of the storages from outside the step that it read."""
        self.written: dict[int, Tensor] = {}
        """Tensors from outside the step that it wrote, by address."""
        self.host_values: list[tuple[Tensor, int]] = []
        """Tensors of the host from outside that took part, with their versions."""
        self.in_update = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Note what the operation reads and writes, and run it."""
        del types
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_iter((args, kwargs)) if isinstance(leaf, Tensor)]
        self._note_outside(func, args, tensors)
        self._check(func, args, kwargs, tensors)
        result = func(*args, **kwargs)
        made = [leaf for leaf in tree_iter(result) if isinstance(leaf, Tensor)]
        for tensor in made:
            self._note_made(tensor)
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._check_random(func, [*tensors, *made])
        return result

    def _note_outside(self, func: Any, args: tuple[Any, ...], tensors: list[Tensor]) -> None:
        for tensor in tensors:
            address = storage_address(tensor)
            if address in self._made:
                continue
            self.read.add(address)
            on_host = tensor.device.type == "cpu" and self._device_type != "cpu"
            if on_host and not self.in_update:
                self.host_values.append((tensor, tensor._version))
        for value, argument in zip(args, func._schema.arguments, strict=False):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for leaf in tree_iter(value):
                if isinstance(leaf, Tensor) and storage_address(leaf) not in self._made:
                    self.written[storage_address(leaf)] = leaf.detach()

    def _note_made(self, tensor: Tensor) -> None:
        address = storage_address(tensor)
        if address and address not in self.read and address not in self.written:
            self._made.add(address)

    def _check_random(self, func: Any, tensors: list[Tensor]) -> None:
        # attention on the GPU returns its seed on the CPU, so only a pure CPU operation counts
        if tensors and self._device_type != "cpu" and all(t.device.type == "cpu" for t in tensors):
            self._add(ReasonCode.RNG_GENERATOR, f"{_name(func)} draws random numbers on the CPU")

    def _check(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[Tensor],
    ) -> None:
        name = func._schema.name.removeprefix("aten::")
        on_gpu = any(tensor.device.type == self._device_type for tensor in tensors)
        if name in _READS and on_gpu:
            what = "reads a tensor's value" if name == "_local_scalar_dense" else f"({name}) waits"
            self._add(ReasonCode.HOST_SYNC, f"the step {what} on the host")
        elif name in _DYNAMIC and on_gpu:
            self._add(ReasonCode.DYNAMIC_SHAPE, f"the shape of {name}'s result depends on data")
        elif name == "repeat_interleave" and on_gpu and kwargs.get("output_size") is None:
            self._add(ReasonCode.DYNAMIC_SHAPE, "repeat_interleave without output_size")
        elif name in _MASKED and on_gpu and _has_mask(args):
            self._add(ReasonCode.DYNAMIC_SHAPE, "indexing with a mask gives a shape of the data")
        elif name in ("_to_copy", "copy_"):
            self._check_copy(name, args, kwargs)
        generator = kwargs.get("generator")
        if generator is not None and generator._cdata not in self._generators:
            self._add(ReasonCode.RNG_GENERATOR, f"{name} uses a generator of its own")

    def _check_copy(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        source = args[1] if name == "copy_" else args[0]
        target = args[0].device if name == "copy_" else kwargs.get("device")
        if not isinstance(source, Tensor) or target is None:
            return
        kind = torch.device(target).type
        if source.device.type == kind:
            return
        if kind == "cpu":
            self._add(ReasonCode.HOST_SYNC, "a tensor is copied to the host")
        elif source.device.type == "cpu":
            shape = list(source.shape)
            self._add(ReasonCode.CPU_TENSOR_OP, f"a tensor {shape} is copied from the host")

    def _add(self, code: ReasonCode, message: str) -> None:
        reason = CaptureReason.of(code, message, user_location(), in_update=self.in_update)
        if reason not in self.reasons:
            self.reasons.append(reason)


@contextmanager
def python_calls_watched(reasons: list[CaptureReason]) -> Iterator[None]:
    """Note random numbers of Python and clocks read in this thread; a replay repeats the first.

    Garbage is not collected meanwhile: libraries have it call them, and then look at the clock.
    """
    # setprofile is per thread, so that loaders drawing in theirs are not mistaken for the step
    previous = sys.getprofile()
    if previous is not None:
        yield
        return

    def watch(frame: FrameType, event: str, function: Any) -> None:
        if event != "c_call":
            return
        what = _unrepeatable(function, str(frame.f_globals.get("__name__")))
        if what is None or _is_of_compiler(frame):
            return
        message, hint = what
        reason = CaptureReason.of(ReasonCode.BAKED_SCALAR, message, user_location(), hint=hint)
        if reason not in reasons:
            reasons.append(reason)

    with no_collection():
        sys.setprofile(watch)
        try:
            yield
        finally:
            sys.setprofile(None)


def _is_of_compiler(frame: FrameType | None) -> bool:
    """Return whether a call is made on behalf of torch.compile, which is at work just now."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_COMPILER):
            return True
        frame = frame.f_back
    return False


def _unrepeatable(function: Any, caller: str) -> tuple[str, str] | None:
    """Return what is wrong with a call, and a hint, when its result differs each time."""
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(owner, random.Random) and name not in ("getstate", "seed", "setstate"):
        what = f"the step draws random numbers with Python's random.{name}"
        return what, "draw them with torch on the model's device"
    is_clock = name in _CLOCKS and any(
        owner is one for one in (time, datetime.datetime, datetime.date)
    )
    if is_clock and not is_foreign(caller):
        return f"the step reads the clock with {name}", "read it between the steps"
    if owner is builtins and name in _LOOKUPS and not is_foreign(caller):
        return f"the step looks variables up with {name}()", "name them in the code"
    return None


@contextmanager
def numpy_random_watched(reasons: list[CaptureReason]) -> Iterator[None]:
    """Note a use of NumPy's global random generator."""
    before = _numpy_random_state()
    yield
    if _numpy_random_state() != before:
        reasons.append(
            CaptureReason.of(
                ReasonCode.BAKED_SCALAR,
                "NumPy's global random generator was used during the step",
                hint="draw random numbers with torch on the model's device",
            )
        )


def _numpy_random_state() -> tuple[Any, ...] | None:
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "random"):
        return None
    _, keys, position, *_ = numpy.random.get_state()
    return (int(keys[0]), int(position))


def storage_address(tensor: Tensor) -> int:
    """Return where the memory behind a tensor begins, 0 when it has none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # sparse and functional tensors have none
        return 0


def _has_mask(args: tuple[Any, ...]) -> bool:
    indices = args[1] if len(args) > 1 else ()
    if not isinstance(indices, list | tuple):
        return False
    return any(isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices)


def _name(func: Any) -> str:
    return str(func._schema.name).replace("aten::", "torch.")
