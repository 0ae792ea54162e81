"""What a load found: which keys went where, and which differed."""

from __future__ import annotations

from dataclasses import dataclass, field

from flodl_hf.errors import KeySetError

SHOWN = 20


@dataclass(kw_only=True)
class HfLoadReport:
    """What happened to every stored tensor and to every parameter of the model.

    Attributes:
        loaded: Names of parameters that were read.
        missing: Parameters that the file does not have.
        unused: Stored names that the model does not have.
        ignored: Stored names that are known to mean nothing to this model.
        mismatched: Parameter, stored shape, and the model's shape.
        dtypes: Number of stored tensors of each dtype.
        tied: Stored copies of a shared tensor that were equal to it.
        untied: Stored copies that differed, so that the model keeps them as their own parameters.
        new: Parameters that were initialized because the caller allowed it.
        repo_id: Repository on the Hub, or ``None`` for a local directory.
        revision: Commit on the Hub, or ``None``.
    """

    loaded: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    mismatched: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    dtypes: dict[str, int] = field(default_factory=dict)
    tied: list[str] = field(default_factory=list)
    untied: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    repo_id: str | None = None
    revision: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether stored and expected keys agreed."""
        return not (self.missing or self.unused or self.mismatched)

    def into_error(self, source: str, *, hint: str | None = None) -> KeySetError:
        """Return the error that lists every difference, 20 of each kind."""
        shapes = [
            f"{name}: stored {list(stored)}, the model has {list(wanted)}"
            for name, stored, wanted in self.mismatched
        ]
        parts = [
            _bucket("missing", self.missing),
            _bucket("not in the model", self.unused),
            _bucket("of another shape", shapes),
        ]
        text = "; ".join(part for part in parts if part)
        return KeySetError(f"{source}: the stored keys do not fit: {text}", self, hint=hint)


def shortened(names: list[str]) -> str:
    """Return sorted names, at most 20 of them, and how many more there are."""
    shown = sorted(names)[:SHOWN]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f", ... and {rest} more" if rest else "")


def _bucket(title: str, names: list[str]) -> str:
    return f"{len(names)} {title} ({shortened(names)})" if names else ""
