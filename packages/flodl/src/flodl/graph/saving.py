"""Part of Graph: checkpoints that know the architecture they belong to, and whole models."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch

from flodl.checkpoint import (
    LoadReport,
    checkpoint_info,
    load_checkpoint,
    save_checkpoint,
    snapshot_cpu,
    write_atomically,
)
from flodl.core.errors import CheckpointMismatchError, GraphPathError, TopologyError
from flodl.graph.base import GraphBase
from flodl.graph.paths import PathKind, find
from flodl.graph.topology import graph_from, topology_of
from flodl.graph.topology.compare import differences

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flodl.checkpoint import ModelSnapshot
    from flodl.checkpoint.load import Rename
    from flodl.graph.topology import Registry

S = TypeVar("S", bound="Saving")


class Saving(GraphBase):
    """Saves and loads parameters and persistent buffers, alone or with the architecture."""

    def save_checkpoint(
        self,
        path: str | os.PathLike[str],
        *,
        meta: Mapping[str, Any] | None = None,
        topology: bool = False,
    ) -> None:
        """Save to a ``.fdl`` file under the names of ``state_dict``, with the structural hash.

        The file is replaced in one step; a path that ends in ``.gz`` is compressed. A text given
        to ``set_source_config`` is written beside it, as ``<stem>.config.json``.

        Args:
            path: Where to write; the folder must exist.
            meta: Your own JSON values, at most one mebibyte of text.
            topology: Store the architecture, too, so that a load into another one can say how
                they differ.

        Raises:
            CheckpointError: It cannot be written; what was there before is unchanged.
        """
        self._save(path, meta, topology_of(self) if topology else None)

    def _save(
        self,
        path: str | os.PathLike[str],
        meta: Mapping[str, Any] | None,
        topology: dict[str, Any] | None,
    ) -> None:
        extra = {} if topology is None else {"fdl.topology": _text(topology)}
        save_checkpoint(
            path, self, self.structural_hash, label=self.label or "", meta=meta, extra=extra
        )
        if self.flodl_source_config is not None:
            with write_atomically(_config_path(Path(path))) as file:
                file.write(self.flodl_source_config.encode())

    def snapshot_cpu(
        self,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        metrics: Mapping[str, float | torch.Tensor] | None = None,
        epoch: int | None = None,
    ) -> ModelSnapshot:
        """Return a copy on the CPU that a background thread may save; see ``snapshot_cpu``."""
        return snapshot_cpu(self, optimizer=optimizer, metrics=metrics, epoch=epoch)

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        *,
        check_hash: bool = True,
        strict: bool = False,
        rename: Rename | None = None,
        cast: bool = True,
        verify: bool = True,
    ) -> LoadReport:
        """Copy the values of a checkpoint into this graph, in place; see ``load_checkpoint``.

        Raises:
            CheckpointError: As ``flodl.load_checkpoint`` documents; nothing has changed then.
        """
        try:
            return load_checkpoint(
                path,
                self,
                self.structural_hash,
                check_hash=check_hash,
                strict=strict,
                rename=rename,
                cast=cast,
                verify=verify,
            )
        except CheckpointMismatchError as error:
            stored = checkpoint_info(path).topology
            if stored is None:
                raise
            lines = "\n  ".join(differences(stored, topology_of(self)))
            raise CheckpointMismatchError(
                f"{error.message}; they differ:\n  {lines}", hint=error.hint
            ) from error

    def load_subgraph_checkpoint(
        self, path: str, file: str | os.PathLike[str], **options: Any
    ) -> LoadReport:
        """Load the checkpoint of a graph that was saved alone into the graph at a path.

        Its hash is checked against that graph's; nothing outside it changes.

        Args:
            path: Path to a nested graph.
            file: What that graph's ``save_checkpoint`` wrote.
            options: As ``load_checkpoint`` takes them.

        Raises:
            GraphPathError: The path leads nowhere, or to a tag.
            CheckpointError: As ``load_checkpoint``; nothing has changed then.
        """
        place = find(self, path)
        if place.kind is not PathKind.SUBGRAPH or not isinstance(place.graph, Saving):
            raise GraphPathError(
                f"load_subgraph_checkpoint({path!r}): that is a {place.kind}",
                hint="name a nested graph",
            )
        return place.graph.load_checkpoint(file, **options)

    # ------------------------------------------------------------- source configuration

    def set_source_config(self, text: str) -> None:
        """Keep a text, such as the ``config.json`` it was made from, to be saved beside it."""
        self.flodl_source_config = text

    @property
    def source_config(self) -> str | None:
        """The text that is saved beside checkpoints, or ``None``."""
        return self.flodl_source_config

    def clear_source_config(self) -> None:
        """Save no text beside checkpoints any more."""
        self.flodl_source_config = None

    # ------------------------------------------------------------- whole models

    def topology(self) -> dict[str, Any]:
        """Return the architecture as JSON values: nodes, wiring, attributes, modules, tags."""
        return topology_of(self)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        meta: Mapping[str, Any] | None = None,
        registry: Registry | None = None,
    ) -> None:
        """Save architecture and weights, so that ``Graph.load`` makes the model again.

        Args:
            path: Where to write; ``.fdl`` or ``.fdl.gz``.
            meta: Your own JSON values.
            registry: Classes and functions by name, besides those of ``register_module``.

        Raises:
            TopologyError: Lists all modules whose class is not registered.
            CheckpointError: It cannot be written; what was there before is unchanged.
        """
        self._save(path, meta, topology_of(self, registry, rebuildable=True))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        registry: Registry | None = None,
        device: torch.device | str | None = None,
    ) -> Self:
        """Return the model that ``save`` wrote.

        Nothing is imported by a name in the file, and nothing in it is run.

        Args:
            path: The file.
            registry: Classes and functions by name, besides those of ``register_module``.
            device: Where to put it.

        Raises:
            TopologyError: The file has no architecture, or one that cannot be rebuilt.
            CheckpointError: As ``load_checkpoint``.
        """
        info = checkpoint_info(path)
        if info.topology is None:
            raise TopologyError(
                f"{os.fspath(path)}: has weights only, no architecture",
                hint="build the graph and use load_checkpoint(), or write the file with save()",
            )
        with torch.device("meta"):
            # Without memory first: a file must not make us allocate more than it holds.
            outline = graph_from(info.topology, cls, registry)
        wanted = {
            name: tuple(value.shape)
            for name, value in outline.state_dict().items()
            if isinstance(value, torch.Tensor)
        }
        stored = {name: shape for name, (_, shape) in info.tensors.items()}
        stored |= {alias: stored[name] for alias, name in info.aliases.items()}
        if wanted != stored:
            raise TopologyError(
                f"{os.fspath(path)}: its architecture does not fit its weights",
                hint="the file was changed, or a registered class has changed since",
            )
        with torch.random.fork_rng(devices=[]):
            graph = graph_from(info.topology, cls, registry)
        _match_dtypes(graph, info.tensors)
        _tie(graph, info.aliases)
        graph.load_checkpoint(path, strict=True)
        return graph if device is None else graph.to(device)

    def save_topology(
        self, path: str | os.PathLike[str], *, registry: Registry | None = None
    ) -> None:
        """Write the architecture alone as a JSON file, for ``load_topology``.

        Raises:
            TopologyError: Lists all modules whose class is not registered.
            OSError: The file cannot be written; what was there before is unchanged.
        """
        document = topology_of(self, registry, rebuildable=True)
        with write_atomically(path) as file:
            file.write((json.dumps(document, indent=1) + "\n").encode())

    @classmethod
    def load_topology(cls, path: str | os.PathLike[str], registry: Registry | None = None) -> Self:
        """Return a graph of the architecture in a JSON file, with fresh weights.

        Raises:
            TopologyError: The file describes no graph, or a class that is not known.
            OSError: The file cannot be read.
        """
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise TopologyError(f"{os.fspath(path)}: no JSON document: {error}") from error
        return graph_from(document, cls, registry)


def _match_dtypes(graph: GraphBase, stored: Mapping[str, tuple[torch.dtype, Any]]) -> None:
    """Give the graph the dtypes of the file, so that nothing is rounded by loading it."""
    for module_path, module in graph.named_modules():
        prefix = f"{module_path}." if module_path else ""
        tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for name, tensor in tensors:
            entry = stored.get(f"{prefix}{name}")
            if entry is not None and entry[0] != tensor.dtype:
                tensor.data = tensor.data.to(entry[0])


def _tie(graph: GraphBase, aliases: Mapping[str, str]) -> None:
    """Make one tensor of those that were one when the file was written."""
    owners = {
        f"{path}.{name}" if path else name: (module, name)
        for path, module in graph.named_modules(remove_duplicate=False)
        for tensors in (module.named_parameters, module.named_buffers)
        for name, _ in tensors(recurse=False, remove_duplicate=False)
    }
    for alias, stored in aliases.items():
        if alias in owners and stored in owners:
            module, name = owners[stored]
            setattr(*owners[alias], getattr(module, name))


def _text(topology: dict[str, Any]) -> str:
    return json.dumps(topology, separators=(",", ":"), ensure_ascii=False)


def _config_path(path: Path) -> Path:
    stem = path.name
    for suffix in (".gz", ".fdl"):
        stem = stem.removesuffix(suffix)
    return path.with_name(f"{stem}.config.json")
