"""Text as windows of characters, for next-character prediction (Karpathy's char-rnn set)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, final

import torch
from torch import Tensor

from flodl.core.errors import ConfigError, DatasetFormatError
from flodl.data.dataset import InMemoryDataSet
from flodl.data.datasets.files import SIZE_LIMIT, ByteReader, source_name
from flodl.data.sampler import whole_number

Text: TypeAlias = str | bytes | os.PathLike[str]


@final
@dataclass(frozen=True, eq=False)
class Shakespeare(InMemoryDataSet):
    """Windows of text: ``inputs`` ``[N, S]`` and ``targets`` ``[N, S]``, one character later.

    Both are int64 positions in ``idx_to_char``, the vocabulary in code point order. Overlapping
    windows share memory until a batch copies them.
    """

    inputs: Tensor
    targets: Tensor
    idx_to_char: tuple[str, ...]
    stride: int

    @property
    def names(self) -> tuple[str, ...]:
        """``input`` and ``target``."""
        return ("input", "target")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The inputs and the targets."""
        return (self.inputs, self.targets)

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the targets stand for: the characters."""
        return self.idx_to_char

    @property
    def vocab_size(self) -> int:
        """Number of different characters."""
        return len(self.idx_to_char)

    @property
    def seq_len(self) -> int:
        """Characters in a window."""
        return self.inputs.shape[1]

    @cached_property
    def char_to_idx(self) -> dict[str, int]:
        """Position of each character in the vocabulary."""
        return {char: index for index, char in enumerate(self.idx_to_char)}

    @classmethod
    def parse(cls, text: Text, seq_len: int, stride: int | None = None) -> Shakespeare:
        """Return the windows of a text.

        Args:
            text: The text itself as ``str`` or UTF-8 ``bytes``, or the path of a UTF-8 file.
            seq_len: Characters in a window.
            stride: Characters from one window to the next; ``seq_len`` when left out, so that
                windows do not overlap.

        Raises:
            ConfigError: ``seq_len`` or ``stride`` below 1.
            DatasetFormatError: Bytes that are not UTF-8, or fewer than ``seq_len + 1`` characters.
            DatasetUnavailableError: A path that cannot be read.
        """
        size = whole_number("seq_len", seq_len, least=1)
        step = size if stride is None else whole_number("stride", stride, least=1)
        name, content = _decoded(text)
        if len(content) < size + 1:
            raise DatasetFormatError(
                name,
                None,
                f"{len(content)} characters: windows of seq_len={size} need {size + 1} or more",
            )
        codes = torch.frombuffer(
            bytearray(content.encode("utf-32-le", "surrogatepass")), dtype=torch.int32
        )
        vocabulary, ids = torch.unique(codes, return_inverse=True)
        return cls(
            ids[:-1].unfold(0, size, step),
            ids[1:].unfold(0, size, step),
            tuple(map(chr, vocabulary.tolist())),
            step,
        )

    def encode(self, text: str) -> Tensor:
        """Return the positions of the characters; ``ValueError`` for one that is unknown."""
        try:
            return torch.tensor([self.char_to_idx[char] for char in text], dtype=torch.int64)
        except KeyError as error:
            raise ValueError(
                f"character {error.args[0]!r} is not among the {self.vocab_size} of this text"
            ) from None

    def decode(
        self, indices: Tensor | Sequence[int], errors: Literal["strict", "replace"] = "strict"
    ) -> str:
        """Return the text of positions.

        Raises:
            IndexError: A position outside the vocabulary, unless ``errors`` is ``"replace"``:
                then it reads as U+FFFD.
        """
        chars = []
        for index in torch.as_tensor(indices).tolist():
            if 0 <= index < self.vocab_size:
                chars.append(self.idx_to_char[index])
            elif errors == "replace":
                chars.append("\N{REPLACEMENT CHARACTER}")
            else:
                raise IndexError(
                    f"position {index} is outside the vocabulary: [0, {self.vocab_size})"
                )
        return "".join(chars)

    def split(self, fraction: float = 0.9) -> tuple[Shakespeare, Shakespeare]:
        """Return the first ``fraction`` of the windows, and those that begin after them.

        Both keep the whole vocabulary. Overlapping windows that reach across the cut are in
        neither part.

        Raises:
            ConfigError: A part without windows.
        """
        first = int(len(self) * fraction + 1e-9) if 0 < fraction < 1 else 0
        end = (first - 1) * self.stride + self.seq_len
        second = -(-end // self.stride)
        if not first or second >= len(self):
            raise ConfigError(
                f"split({fraction}) of {len(self)} windows leaves a part without windows"
            )
        return self._part(slice(first)), self._part(slice(second, None))

    def _part(self, windows: slice) -> Shakespeare:
        return Shakespeare(
            self.inputs[windows], self.targets[windows], self.idx_to_char, self.stride
        )


def _decoded(text: Text) -> tuple[str, str]:
    if isinstance(text, str):
        return f"<{len(text)} characters>", text
    name = source_name(text)
    with ByteReader(text) as reader:
        raw = reader.take(SIZE_LIMIT)
        if reader.take(1):
            raise reader.error("more than 1 GiB of text", SIZE_LIMIT)
    try:
        return name, raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DatasetFormatError(name, error.start, f"not UTF-8: {error.reason}") from error
