"""A random generator of our own: numpy's PCG64 with streams that can be split and saved."""

from __future__ import annotations

import hashlib
import math
from collections.abc import MutableSequence
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

_T = TypeVar("_T")


class Rng:
    """Random numbers that depend on the seed alone, the same on every machine.

    Args:
        seed: Any integer that is not negative, or a seed sequence of numpy.
    """

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        if isinstance(seed, int):
            if seed < 0:
                raise ValueError(f"seed={seed}: must not be negative")
            seed = np.random.SeedSequence(seed)
        self._sequence = seed
        self._bits = np.random.PCG64(seed)
        self._draw = np.random.Generator(self._bits)

    @classmethod
    def from_entropy(cls) -> Rng:
        """Return a generator seeded by the operating system, another one each time."""
        return cls(np.random.SeedSequence())

    def usize(self, n: int) -> int:
        """Return an integer in ``[0, n)``."""
        if not 0 < n <= 2**63:
            raise ValueError(f"usize({n}): n must be in [1, 2**63]")
        return int(self._draw.integers(0, n - 1, endpoint=True))

    def f32(self) -> float:
        """Return a float32 number in ``[0, 1)``."""
        return float(self._draw.random(dtype=np.float32))

    def f64(self) -> float:
        """Return a float64 number in ``[0, 1)``."""
        return float(self._draw.random())

    def bernoulli(self, p: float) -> bool:
        """Return true with probability ``p``."""
        if not 0 <= p <= 1:
            raise ValueError(f"bernoulli({p}): p must be in [0, 1]")
        return bool(self._draw.random() < p)

    @overload
    def range(self, lo: int, hi: int) -> int: ...
    @overload
    def range(self, lo: float, hi: float) -> float: ...
    def range(self, lo: float, hi: float) -> float:
        """Return a number in ``[lo, hi)``: an integer for integer bounds, else a float64."""
        if not (lo < hi and math.isfinite(lo) and math.isfinite(hi)):
            raise ValueError(f"range({lo}, {hi}): needs finite bounds, the lower one first")
        if isinstance(lo, int) and isinstance(hi, int):
            return lo + self.usize(hi - lo)
        value = lo + (hi - lo) * float(self._draw.random())
        # Rounding can reach the open end.
        return value if value < hi else lo

    def normal(self, mean: float = 0.0, std: float = 1.0) -> float:
        """Return a number of the normal distribution."""
        if not 0 <= std < math.inf:
            raise ValueError(f"normal({mean}, {std}): std must be finite and not negative")
        return float(self._draw.normal(mean, std))

    def shuffle(self, items: MutableSequence[_T]) -> None:
        """Bring a list into random order, in place."""
        for last in range(len(items) - 1, 0, -1):
            other = self.usize(last + 1)
            items[last], items[other] = items[other], items[last]

    def permutation(self, n: int) -> npt.NDArray[np.int64]:
        """Return the integers below ``n`` in random order."""
        if n < 0:
            raise ValueError(f"permutation({n}): n must not be negative")
        return self._draw.permutation(np.arange(n, dtype=np.int64))

    def clone(self) -> Rng:
        """Return a generator with the same future, splits included."""
        result = Rng(0)
        result.load_state_dict(self.state_dict())
        return result

    def spawn(self, n: int) -> list[Rng]:
        """Return ``n`` generators independent of this one and of all spawned before."""
        if n < 0:
            raise ValueError(f"spawn({n}): n must not be negative")
        return [Rng(child) for child in self._sequence.spawn(n)]

    def fork(self, key: int | str) -> Rng:
        """Return the independent generator that belongs to ``key``.

        The same key gives the same generator, however many numbers were drawn before.
        """
        digest = hashlib.sha256(f"{type(key).__name__}/{key}".encode()).digest()
        words = np.frombuffer(digest[:16], dtype="<u4").tolist()
        base = self._sequence
        return Rng(np.random.SeedSequence(base.entropy, spawn_key=(*base.spawn_key, *words)))

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as numbers and lists, fit for JSON."""
        state: dict[str, Any] = dict(self._bits.state)
        sequence = self._sequence
        return {
            "entropy": sequence.entropy,
            "spawn_key": list(sequence.spawn_key),
            "children": sequence.n_children_spawned,
            "pcg64": dict(state["state"]),
            "has_uint32": state["has_uint32"],
            "uinteger": state["uinteger"],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as the generator did whose state this is.

        Raises:
            ValueError: A key is missing, or a value cannot belong to a generator.
        """
        try:
            sequence = np.random.SeedSequence(
                state["entropy"],
                spawn_key=tuple(state["spawn_key"]),
                n_children_spawned=state["children"],
            )
            bits = np.random.PCG64(sequence)
            bits.state = {
                "bit_generator": "PCG64",
                "state": {"state": state["pcg64"]["state"], "inc": state["pcg64"]["inc"]},
                "has_uint32": state["has_uint32"],
                "uinteger": state["uinteger"],
            }
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not the state of an Rng: {error!r}") from error
        self._sequence, self._bits = sequence, bits
        self._draw = np.random.Generator(bits)
