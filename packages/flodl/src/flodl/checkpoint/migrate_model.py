"""Bringing a checkpoint to the names of another version of a model."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from flodl.checkpoint.content import read_header, read_tensors
from flodl.checkpoint.files import DEFAULT_MAX_BYTES, open_plain
from flodl.checkpoint.format import Header
from flodl.checkpoint.info import unreadable
from flodl.checkpoint.save import save_checkpoint
from flodl.core.errors import CheckpointKeyError, CheckpointShapeError

_Kind = tuple[tuple[int, ...], torch.dtype]


@dataclass(frozen=True, slots=True)
class MigrateReport:
    """What became of the names of a checkpoint.

    Attributes:
        unchanged: Names that fit as they are.
        remapped: Pairs of old and new name.
        dropped: Names of the file that the new one leaves out.
        missing: Names of the model that the new file has not.
        ambiguous: Names of the file and of the model between which shapes do not decide: one
            pair of lists for each shape. None of them is in the new file.
    """

    unchanged: tuple[str, ...]
    remapped: tuple[tuple[str, str], ...]
    dropped: tuple[str, ...]
    missing: tuple[str, ...]
    ambiguous: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]

    @property
    def is_complete(self) -> bool:
        """Whether the new file has every name of the model."""
        return not self.missing and not self.ambiguous

    def __str__(self) -> str:
        lines = [
            f"{len(self.unchanged)} unchanged, {len(self.remapped)} remapped, "
            f"{len(self.dropped)} dropped, {len(self.missing)} missing, "
            f"{len(self.ambiguous)} ambiguous"
        ]
        lines += [f"  {old} -> {new}" for old, new in self.remapped]
        lines += [f"  dropped: {name}" for name in self.dropped]
        lines += [f"  missing: {name}" for name in self.missing]
        lines += [
            f"  ambiguous: {', '.join(old)} -> {', '.join(new)}: decide with rules="
            for old, new in self.ambiguous
        ]
        return "\n".join(lines)


def migrate_checkpoint(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    target: nn.Module | Mapping[str, torch.Tensor],
    *,
    rules: Mapping[str, str] | None = None,
) -> MigrateReport:
    r"""Write a checkpoint under the names of a model, by rule, by name, then by shape.

    First the rules; then names that are the same, with the same shape; then tensors whose shape
    and dtype occur once among what is left on both sides. The new file has the present format and
    no hash. It takes the place of ``dst`` in one step, which may be ``src``.

    Args:
        src: A checkpoint: ``.fdl``, plain safetensors, or of the Rust original.
        dst: Where to write.
        target: The model, or tensors by name.
        rules: New names by regular expression; the whole old name must match, and the new one
            may refer to groups: ``{r"layer(\d+)\.(.*)": r"blocks.\1.\2"}``.

    Raises:
        CheckpointError: ``src`` cannot be read, or ``dst`` not written.
        CheckpointKeyError: A rule leads to a name that the model has not, or two to one name.
        CheckpointShapeError: A rule leads to a tensor of another shape.
    """
    name = os.fspath(src)
    wanted = _kinds_of(target)
    try:
        with open_plain(src, name=name, max_bytes=DEFAULT_MAX_BYTES) as file:
            header, _ = read_header(file, name=name)
            stored = _stored_kinds(header)
            matching = _Matching(stored, wanted)
            matching.by_rules(rules or {})
            matching.by_name()
            matching.by_kind()
            chosen = {new: header.aliases.get(old, old) for old, new in matching.pairs.items()}
            tensors = read_tensors(
                file, header, wanted=set(chosen.values()), name=name, verify=True
            )
    except OSError as error:
        raise unreadable(name, error) from error
    save_checkpoint(dst, {new: tensors[old] for new, old in chosen.items()}, hash="")
    return matching.report()


class _Matching:
    """Old names with the new ones found for them so far."""

    def __init__(self, stored: dict[str, _Kind], wanted: dict[str, _Kind]) -> None:
        self.pairs: dict[str, str] = {}
        self._stored = stored
        self._wanted = wanted
        self._ambiguous: list[tuple[tuple[str, ...], tuple[str, ...]]] = []

    def by_rules(self, rules: Mapping[str, str]) -> None:
        for old, (shape, _) in self._stored.items():
            match = next(
                (
                    (found, new)
                    for pattern, new in rules.items()
                    if (found := re.fullmatch(pattern, old)) is not None
                ),
                None,
            )
            if match is None:
                continue
            new = match[0].expand(match[1])
            if new not in self._wanted or new in self.pairs.values():
                reason = "was given before" if new in self._wanted else "is no name of the model"
                raise CheckpointKeyError(
                    f"rules: {old!r} becomes {new!r}, which {reason}",
                    hint="correct the rule; the first one that matches a name counts",
                )
            if self._wanted[new][0] != shape:
                raise CheckpointShapeError(
                    f"rules: {old!r} of shape {list(shape)} becomes {new!r} of shape "
                    f"{list(self._wanted[new][0])}"
                )
            self.pairs[old] = new

    def by_name(self) -> None:
        taken = set(self.pairs.values())
        for old, (shape, _) in self._stored.items():
            if old in self.pairs or old in taken or old not in self._wanted:
                continue
            if self._wanted[old][0] == shape:
                self.pairs[old] = old

    def by_kind(self) -> None:
        free_old, free_new = self._left()
        for kind in dict.fromkeys(self._stored[old] for old in free_old):
            old = tuple(name for name in free_old if self._stored[name] == kind)
            new = tuple(name for name in free_new if self._wanted[name] == kind)
            if len(old) == len(new) == 1:
                self.pairs[old[0]] = new[0]
            elif new:
                self._ambiguous.append((old, new))

    def report(self) -> MigrateReport:
        free_old, free_new = self._left()
        unsure_old = {name for old, _ in self._ambiguous for name in old}
        unsure_new = {name for _, new in self._ambiguous for name in new}
        return MigrateReport(
            unchanged=tuple(old for old, new in self.pairs.items() if old == new),
            remapped=tuple((old, new) for old, new in self.pairs.items() if old != new),
            dropped=tuple(name for name in free_old if name not in unsure_old),
            missing=tuple(name for name in free_new if name not in unsure_new),
            ambiguous=tuple(self._ambiguous),
        )

    def _left(self) -> tuple[list[str], list[str]]:
        taken = set(self.pairs.values())
        return (
            [name for name in self._stored if name not in self.pairs],
            [name for name in self._wanted if name not in taken],
        )


def _kinds_of(target: nn.Module | Mapping[str, torch.Tensor]) -> dict[str, _Kind]:
    tensors = target.state_dict() if isinstance(target, nn.Module) else target
    return {name: (tuple(value.shape), value.dtype) for name, value in tensors.items()}


def _stored_kinds(header: Header) -> dict[str, _Kind]:
    """Return shape and dtype of every name, in the order of the file."""
    in_order = sorted(header.entries.values(), key=lambda entry: entry.start)
    kinds = {entry.name: (entry.shape, entry.dtype) for entry in in_order}
    return kinds | {alias: kinds[name] for alias, name in header.aliases.items()}
