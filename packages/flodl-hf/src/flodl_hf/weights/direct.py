"""Reading tensors from a safetensors file into memory of their own, without mapping the file.

Pages of a mapped file count as resident memory once they are read, so copying from one needs room
for two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import FileIO

import torch
from torch import Tensor

from flodl_hf.errors import WeightsError


class DirectFile:
    """Tensors of one file by their places in it.

    Args:
        file: The file, unbuffered; the library has checked its header.
        title: For messages.
    """

    def __init__(self, file: FileIO, title: str) -> None:
        self._file, self._title = file, title
        length = int.from_bytes(file.read(8), "little")
        header: Mapping[str, Mapping[str, list[int]]] = json.loads(file.read(length))
        self._start = 8 + length
        self._places = {
            name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"
        }

    def read(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return a tensor.

        Raises:
            WeightsError: The file is shorter than it was when it was opened.
        """
        tensor = torch.empty(shape, dtype=dtype, device="cpu")
        if not tensor.numel():
            return tensor
        begin, end = self._places[name]
        room = tensor.flatten().view(torch.uint8).numpy().data
        self._file.seek(self._start + begin)
        filled = 0
        while filled < end - begin:
            count = self._file.readinto(room[filled:])
            if not count:
                raise WeightsError(
                    f"{self._title}: ends inside {name!r}",
                    hint="something wrote to it while it was read: load it again",
                )
            filled += count
        return tensor
