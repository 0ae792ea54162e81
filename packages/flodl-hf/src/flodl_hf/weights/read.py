"""Strict loading: every key is accounted for before the first tensor of a graph changes."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from flodl_hf.errors import DtypeError, TiedWeightError
from flodl_hf.weights.keymap import HEAD_ROOTS, WORD_TABLE, KeyMap, Rename, map_keys
from flodl_hf.weights.report import HfLoadReport
from flodl_hf.weights.source import TensorSource, open_source

_log = logging.getLogger(__name__)


@runtime_checkable
class Untieable(Protocol):
    """A module that borrows the word table and can be given a table of its own."""

    def untie(self) -> None:
        """Hold a table of its own from now on, not yet filled."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadRules:
    """What a load may leave open.

    Attributes:
        rename: Applied to stored names first.
        allow_unused: Stored names, or beginnings of them that end in a dot, that may be left over.
        may_init: Beginnings of parameter names that may be missing or of another shape.
        dtype: Cast to this dtype while reading; ``None`` keeps what is stored.
        strict: Refuse names that are left over.
        mmap: Use the mapped file itself as memory.
    """

    rename: Rename | None = None
    allow_unused: tuple[str, ...] = ()
    may_init: tuple[str, ...] = ()
    dtype: torch.dtype | None = None
    strict: bool = True
    mmap: bool = False


def load_safetensors_into(
    graph: nn.Module,
    source: str | os.PathLike[str] | bytes | Mapping[str, Tensor],
    *,
    rename: Rename | None = None,
    allow_unused: Collection[str] = (),
    dtype: torch.dtype | None = None,
    strict: bool = True,
    mmap: bool = False,
) -> HfLoadReport:
    """Give every parameter of a graph its stored value, with the stored dtype.

    Args:
        graph: A graph, or any module with a checkpoint's keys.
        source: A file, a directory, bytes, or tensors by name.
        rename: Stored name to name, as a mapping or a function; applied before anything else.
        allow_unused: Stored names that may be left over; one that ends in a dot means all below.
        dtype: Cast while reading, one tensor at a time.
        strict: Refuse stored names that are left over. Missing ones are refused in any case.
        mmap: Use the mapped file as memory, for inference from a file that stays.

    Raises:
        KeySetError: Names are missing or left over, or shapes differ; nothing has changed.
        WeightsError: As its kinds say; nothing has changed.
    """
    return load(
        graph,
        source,
        LoadRules(
            rename=rename, allow_unused=tuple(allow_unused), dtype=dtype, strict=strict, mmap=mmap
        ),
    )


def load(
    graph: nn.Module,
    source: str | os.PathLike[str] | bytes | Mapping[str, Tensor],
    rules: LoadRules,
) -> HfLoadReport:
    """Load by rules; see ``load_safetensors_into``."""
    with ExitStack() as stack:
        stored = open_source(stack, source, mmap=rules.mmap)
        target = graph.state_dict(keep_vars=True)
        keys = map_keys(stored.names(), target, rules.rename)
        report = _compare(stored, keys, target, rules)
        open_names = [*report.missing, *(name for name, _, _ in report.mismatched)]
        hint = None
        if open_names and all(_is_head(name) for name in open_names):
            hint = "new_head=True initializes a head that the file does not have"
        if report.missing or report.mismatched or (rules.strict and report.unused):
            raise report.into_error(stored.title, hint=hint)
        _check_dtypes(stored, keys)
        _check_copies(stored, keys)
        untied = _differing_tables(stored, keys, target, report)
        wanted = {name: keys.stored[name] for name in report.loaded}
        tensors = {name: _read(stored, at, rules.dtype) for name, at in wanted.items()}
        tensors |= _untied_tensors(stored, keys, untied, tensors, rules.dtype)
    for name in untied:
        _log.warning(
            "%s: %s differs from the word table, though the config ties them: kept apart",
            stored.title,
            name,
        )
        _decoder_of(graph, name).untie()
    assign(graph, tensors)
    return report


def assign(graph: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put tensors in the place of parameters and buffers; those on ``meta`` become real."""
    with torch.no_grad():
        for name, tensor in tensors.items():
            path, _, leaf = name.rpartition(".")
            module = graph.get_submodule(path)
            old = getattr(module, leaf)
            if not isinstance(old, nn.Parameter):
                module.register_buffer(leaf, tensor.to(old.device))
            elif old.is_meta:
                fresh = nn.Parameter(tensor, requires_grad=old.requires_grad)
                setattr(module, leaf, fresh)
            else:
                old.data = tensor.to(old.device)


def _compare(
    stored: TensorSource, keys: KeyMap, target: Mapping[str, Tensor], rules: LoadRules
) -> HfLoadReport:
    report = HfLoadReport(ignored=list(keys.ignored))
    report.unused = [name for name in keys.unused if not _allowed(name, rules.allow_unused)]
    report.ignored += [name for name in keys.unused if name not in set(report.unused)]
    for name, tensor in target.items():
        may_init = name.startswith(rules.may_init) if rules.may_init else False
        if name not in keys.stored:
            (report.new if may_init else report.missing).append(name)
        elif (shape := stored.shape(keys.stored[name])) != tuple(tensor.shape):
            if may_init:
                report.new.append(name)
            else:
                report.mismatched.append((name, shape, tuple(tensor.shape)))
        else:
            report.loaded.append(name)
    table = _word_table(target)
    for name, at in keys.table_copies.items():
        if stored.shape(at) != tuple(target[table].shape):
            report.mismatched.append((name, stored.shape(at), tuple(target[table].shape)))
    counts = Counter(str(stored.dtype(keys.stored[name])) for name in report.loaded)
    report.dtypes = {name.removeprefix("torch."): count for name, count in counts.items()}
    return report


def _allowed(name: str, allowed: tuple[str, ...]) -> bool:
    return any(name == item or (item.endswith(".") and name.startswith(item)) for item in allowed)


def _is_head(name: str) -> bool:
    return name.split(".", 1)[0] in HEAD_ROOTS or "pooler" in name.split(".")


def _check_dtypes(stored: TensorSource, keys: KeyMap) -> None:
    copies = [*keys.bias_copies.items(), *keys.table_copies.items()]
    for name, at in [*keys.stored.items(), *copies]:
        dtype = stored.dtype(at)
        if not isinstance(dtype, torch.dtype):
            raise DtypeError(
                f"{stored.title}: {name} is stored as {dtype}; a parameter is one of F64, F32, "
                "F16, BF16",
                hint="quantized files are not supported: take the original weights",
            )


def _check_copies(stored: TensorSource, keys: KeyMap) -> None:
    for name, copy in keys.bias_copies.items():
        if name in keys.stored and not torch.equal(
            stored.read(keys.stored[name]), stored.read(copy)
        ):
            raise TiedWeightError(
                f"{stored.title}: {keys.stored[name]!r} and {copy!r} are one bias, but differ",
                hint="remove the one that is wrong from the file",
            )


def _differing_tables(
    stored: TensorSource, keys: KeyMap, target: Mapping[str, Tensor], report: HfLoadReport
) -> list[str]:
    """Return the copies of the word table that are not equal to it."""
    differing: list[str] = []
    table = _word_table(target)
    for name, at in keys.table_copies.items():
        same = table in keys.stored and torch.equal(
            stored.read(keys.stored[table]), stored.read(at)
        )
        (report.tied if same else differing).append(name)
    report.untied = list(differing)
    return differing


def _word_table(target: Mapping[str, Tensor]) -> str:
    return next((name for name in target if name.endswith(WORD_TABLE)), "")


def _untied_tensors(
    stored: TensorSource,
    keys: KeyMap,
    untied: list[str],
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype | None,
) -> dict[str, Tensor]:
    """Return what decoders need that get a table of their own: the table, and their bias."""
    result = {}
    for name in untied:
        result[name] = _read(stored, keys.table_copies[name], dtype)
        parent = name.removesuffix(".weight")
        bias = f"{parent.removesuffix('.decoder')}.bias"
        if parent.endswith(".decoder") and bias in tensors:
            result[f"{parent}.bias"] = tensors[bias].clone()
    return result


def _decoder_of(graph: nn.Module, name: str) -> Untieable:
    parts = name.split(".")
    for length in range(1, len(parts)):
        module = graph.get_submodule(".".join(parts[:length]))
        if isinstance(module, Untieable):
            return module
    raise AssertionError(f"{name}: the head that has this key borrows the word table")


def _read(stored: TensorSource, name: str, dtype: torch.dtype | None) -> Tensor:
    tensor = stored.read(name)
    return tensor if dtype is None or tensor.dtype == dtype else tensor.to(dtype)
