"""Sums of scalars, kept where the scalars are and read without waiting."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from flodl.monitor.errors import MetricTypeError

Sums = dict[str, tuple[float, int]]


class ScalarSums:
    """Sums and counts by name. Numbers are summed here, tensors of a GPU there in one launch."""

    def __init__(self) -> None:
        self._host: dict[str, float] = {}
        self._device: dict[str, Any] = {}
        self._counts: dict[str, int] = {}

    def add(self, scalars: Mapping[str, Any]) -> None:
        """Add one value of each.

        Raises:
            MetricTypeError: A value is no single number; none of them was added.
        """
        if self._add_numbers(scalars):
            return
        tensors: dict[str, Any] = {}
        numbers: dict[str, float] = {}
        for name, value in scalars.items():
            if isinstance(value, (float, int)):
                numbers[name] = value
            elif hasattr(value, "detach"):
                scalar = value if value.dim() == 0 else _scalar(name, value)
                if value.is_cpu:
                    # reading it waits for nothing, and costs less than summing tensors
                    numbers[name] = _real(name, scalar.item())
                else:
                    tensors[name] = scalar
            else:
                numbers[name] = _number(name, value)
        host, counts = self._host, self._counts
        for name, value in numbers.items():
            host[name] = host.get(name, 0.0) + value
        if tensors:
            self._add_tensors(tensors)
        for name in scalars:
            counts[name] = counts.get(name, 0) + 1

    def _add_numbers(self, scalars: Mapping[str, Any]) -> bool:
        """Add values that are all plain numbers, which is the common case; return whether so."""
        for value in scalars.values():
            if type(value) is not float and type(value) is not int:
                return False
        host, counts = self._host, self._counts
        for name, value in scalars.items():
            if name in host:
                host[name] += value
                counts[name] += 1
            else:
                host[name] = value
                counts[name] = counts.get(name, 0) + 1
        return True

    def begin_read(self) -> PendingSums:
        """Start to read all sums, and start afresh."""
        pending = PendingSums(self._host, self._device, self._counts)
        self._host, self._device, self._counts = {}, {}, {}
        return pending

    def _add_tensors(self, tensors: Mapping[str, Any]) -> None:
        torch, device = sys.modules["torch"], self._device
        # detaching each tensor would cost more than their sum
        with torch.no_grad():
            if tensors.keys() <= device.keys():
                torch._foreach_add_([device[name] for name in tensors], list(tensors.values()))
                return
            for name, value in tensors.items():
                if name in device:
                    device[name] += value
                else:
                    wide = value.dtype if value.dtype.is_floating_point else torch.float32
                    wide = torch.float32 if wide.itemsize < 4 else wide
                    device[name] = value.detach().to(wide, copy=True)


class PendingSums:
    """Sums on their way from the device."""

    def __init__(
        self, host: Mapping[str, float], device: Mapping[str, Any], counts: Mapping[str, int]
    ) -> None:
        self._host = host
        self._counts = counts
        self._names = list(device)
        self._buffer: Any = None
        self._event: Any = None
        if device:
            self._start(list(device.values()))

    @property
    def is_ready(self) -> bool:
        """Whether taking them would not wait."""
        return self._event is None or bool(self._event.query())

    def take(self) -> Sums:
        """Return sum and count by name, in first-added order; waits until they are there."""
        if self._event is not None:
            self._event.synchronize()
        values = dict(self._host)
        if self._names:
            values.update(zip(self._names, self._buffer.tolist(), strict=True))
        return {name: (float(values[name]), count) for name, count in self._counts.items()}

    def _start(self, tensors: list[Any]) -> None:
        torch = sys.modules["torch"]
        stacked = torch.stack([tensor.to(tensors[0].device) for tensor in tensors])
        if stacked.device.type != "cuda":
            self._buffer = stacked
            return
        self._buffer = torch.empty(len(tensors), dtype=stacked.dtype, pin_memory=True)
        self._buffer.copy_(stacked, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(stacked.device))


def _scalar(name: str, value: Any) -> Any:
    """Return a tensor of one element without its dimensions."""
    if value.numel() != 1:
        raise MetricTypeError(
            f"step({name}=...): a tensor of shape {tuple(value.shape)} is no scalar",
            hint="reduce it first, for example with .mean()",
        )
    return value.reshape(())


def _real(name: str, value: Any) -> float:
    if isinstance(value, complex):
        raise MetricTypeError(
            f"step({name}={value!r}): a complex number has no mean that could be shown",
            hint="report its absolute value",
        )
    return value  # type: ignore[no-any-return]  # a number, as item() gives it


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise MetricTypeError(
            f"step({name}={value!r}): neither a number nor a tensor of one element"
        ) from error
