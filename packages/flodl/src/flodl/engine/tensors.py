"""All parameters and floating buffers of a model, to be read and written as flat buffers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from flodl.core.errors import ConfigError


class ModelTensors:
    """Copies a model's parameters and floating buffers to flat buffers and back, in place.

    What is written keeps its memory, so captured steps go on with the new values and nothing is
    recorded anew. Both directions are work of the current stream, on a GPU without a wait.

    Args:
        model: The model.
        buffers: Whether floating buffers, running statistics for instance, go along.

    Examples:
        >>> import torch
        >>> from flodl.engine.tensors import ModelTensors
        >>> model = torch.nn.Linear(2, 1)
        >>> state = ModelTensors(model)
        >>> flat = state.read()
        >>> state.write([bucket.zero_() for bucket in flat])
        >>> model.weight.sum().item()
        0.0
    """

    def __init__(self, model: nn.Module, *, buffers: bool = True) -> None:
        named: dict[str, Tensor] = dict(model.named_parameters())
        if buffers:
            named |= {n: b for n, b in model.named_buffers() if b.is_floating_point()}
        self._by_dtype: dict[torch.dtype, list[tuple[str, Tensor]]] = {}
        for name, tensor in named.items():
            self._by_dtype.setdefault(tensor.dtype, []).append((name, tensor))
        self.names = tuple(name for group in self._by_dtype.values() for name, _ in group)
        """Names in the order in which they lie in the buffers."""
        self._flat = [
            torch.zeros(sum(t.numel() for _, t in group), dtype=dtype, device=group[0][1].device)
            for dtype, group in self._by_dtype.items()
        ]
        self._views = [_views(f, g) for f, g in zip(self._flat, self._groups(), strict=True)]

    def _groups(self) -> list[list[tuple[str, Tensor]]]:
        return list(self._by_dtype.values())

    @torch.no_grad()
    def read(self) -> tuple[Tensor, ...]:
        """Copy the present values into the flat buffers, one for each dtype, and return these.

        They are the same buffers each time.
        """
        for views, group in zip(self._views, self._groups(), strict=True):
            torch._foreach_copy_(views, [tensor.detach() for _, tensor in group])
        return tuple(self._flat)

    @torch.no_grad()
    def write(self, buckets: Sequence[Tensor]) -> None:
        """Copy flat buffers into the model's tensors, which keep their memory.

        Args:
            buckets: One for each dtype, as ``read`` gives them, on any device.

        Raises:
            ConfigError: Another number of buffers, or of elements; nothing was written.
        """
        shapes = [tuple(bucket.shape) for bucket in buckets]
        if shapes != [tuple(flat.shape) for flat in self._flat]:
            raise ConfigError(
                f"write: buffers of shapes {shapes}; they must be those of read(), "
                f"{[tuple(flat.shape) for flat in self._flat]}"
            )
        for bucket, flat, views, group in zip(
            buckets, self._flat, self._views, self._groups(), strict=True
        ):
            if bucket is not flat:
                flat.copy_(bucket)
            torch._foreach_copy_([tensor.detach() for _, tensor in group], views)


def _views(flat: Tensor, group: list[tuple[str, Tensor]]) -> list[Tensor]:
    parts = flat.split([tensor.numel() for _, tensor in group])
    return [part.view(tensor.shape) for part, (_, tensor) in zip(parts, group, strict=True)]
