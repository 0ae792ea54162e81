"""What a step leaves in attributes of modules for others to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Observation:
    """A tensor that a step leaves in an attribute of a module, for others to look at.

    Attributes:
        holder: The module's dictionary that has it.
        key: Its name there.
        tensor: The tensor of the recording, which replays write.
    """

    holder: dict[str, Any]
    key: str
    tensor: Tensor

    def show(self) -> None:
        """Put the recording's tensor in place."""
        self.holder[self.key] = self.tensor


class Observer:
    """Finds the tensors that a step leaves in attributes of modules, while it is recorded.

    Args:
        model: The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._holders = [
            holder
            for module in model.modules()
            for holder in (vars(module), vars(module)["_buffers"])
        ]
        self._before = [dict(holder) for holder in self._holders]

    def found(self) -> list[Observation]:
        """Return what has been set anew since."""
        return [
            Observation(holder, key, value)
            for holder, before in zip(self._holders, self._before, strict=True)
            for key, value in holder.items()
            if isinstance(value, Tensor) and before.get(key) is not value
        ]
