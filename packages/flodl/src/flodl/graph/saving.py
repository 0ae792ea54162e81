"""Part of Graph: checkpoints that know the architecture they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flodl.checkpoint import LoadReport, load_checkpoint, save_checkpoint
from flodl.graph.base import GraphBase

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from flodl.checkpoint.load import Rename


class Saving(GraphBase):
    """Saves and loads parameters and persistent buffers, never state or code."""

    def save_checkpoint(
        self, path: str | os.PathLike[str], *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Save to a ``.fdl`` file under the names of ``state_dict``, with the structural hash.

        The file is replaced in one step; a path that ends in ``.gz`` is compressed.

        Raises:
            CheckpointError: It cannot be written; what was there before is unchanged.
        """
        save_checkpoint(path, self, self.structural_hash, label=self.label or "", meta=meta)

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
