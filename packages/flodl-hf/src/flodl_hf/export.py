"""Writing a directory that the reference loads without a word: weights, config, tokenizer."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from flodl.checkpoint import checkpoint_info
from flodl.graph import Graph
from flodl_hf.auto import (
    BACKBONES,
    AutoConfig,
    AutoHead,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    read_family,
)
from flodl_hf.config.base import HfConfig
from flodl_hf.encoder.build import build_backbone
from flodl_hf.errors import ConfigError, UnsupportedArchitectureError, WeightsError
from flodl_hf.heads.graphs import build_head
from flodl_hf.heads.loading import LoadOptions, load_backbone, load_head
from flodl_hf.hub.fetch import FileSet, locate
from flodl_hf.tokenizer.tokenizer import TOKENIZER_FILES
from flodl_hf.weights.blank import without_values
from flodl_hf.weights.init import give_memory
from flodl_hf.weights.source import INDEX_NAME, WEIGHTS_NAME
from flodl_hf.weights.write import save_sharded_from

HeadName = Literal["auto", "base", "seqcls", "tokcls", "qa", "mlm"]

HEADS: dict[str, type[AutoHead]] = {
    "seqcls": AutoModelForSequenceClassification,
    "tokcls": AutoModelForTokenClassification,
    "qa": AutoModelForQuestionAnswering,
    "mlm": AutoModelForMaskedLM,
}
_SUFFIXES = {
    "ForSequenceClassification": "seqcls",
    "ForTokenClassification": "tokcls",
    "ForQuestionAnswering": "qa",
    "ForMaskedLM": "mlm",
    "Model": "base",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """What an export wrote.

    Attributes:
        folder: Where.
        head: Which shape was written.
        files: Names of the files.
        notes: What a user should know about it.
    """

    folder: Path
    head: str
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()


def head_of(architecture: str | None) -> str | None:
    """Return which shape a class of the reference has, or ``None`` for another one."""
    found = (name for suffix, name in _SUFFIXES.items() if (architecture or "").endswith(suffix))
    return next(found, None)


def export_source(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    head: HeadName = "auto",
    revision: str | None = None,
    force: bool = False,
) -> Exported:
    """Load a model from a directory or the Hub and write it again.

    Args:
        source: A directory, or ``owner/name``.
        out: Folder to write; made if need be.
        head: Which shape; by ``architectures`` when ``"auto"``, where anything unknown is a
            backbone.
        revision: Branch, tag or commit on the Hub.
        force: Replace a model that is there.

    Raises:
        HfError: The model cannot be loaded or written; ``out`` is as it was.
    """
    folder = _free_folder(out, force=force)
    options = LoadOptions(revision=revision, tokenizer=None)
    files = locate(source, options.hub())
    family = read_family(files)
    described = files.require("config.json")
    config = AutoConfig.from_json(described.read_bytes(), str(described))
    notes = []
    chosen: str = head
    if head == "auto":
        named = config.architectures[0] if config.architectures else None
        found = head_of(named)
        chosen = found or "base"
        if found is None:
            notes.append(f"architecture {named}: no head of that kind, the backbone is exported")
    graph, config = _loaded(files, options, family, chosen)
    stamps = {
        "flodl_source_repo": files.repo_id or str(Path(source).resolve()),
        "flodl_source_revision": files.revision,
    }
    tokenizer = [path for name in TOKENIZER_FILES if (path := files.find(name)) is not None]
    config = config.replace(extra={**config.extra, **stamps})
    return _write(folder, graph, config, chosen, tokenizer, notes)


def export_checkpoint(
    checkpoint: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    config: str | os.PathLike[str] | None = None,
    force: bool = False,
    preserve_source_config: bool = False,
) -> Exported:
    """Write the model in a checkpoint that ``head.graph.save_checkpoint`` made.

    Args:
        checkpoint: The ``.fdl`` file.
        out: Folder to write; made if need be.
        config: The config; the one that lies beside the checkpoint when left out.
        force: Replace a model that is there.
        preserve_source_config: Also write the config as it was read, as ``config.source.json``.

    Raises:
        HfError: There is no config, or the checkpoint is of another model; ``out`` is as it was.
    """
    folder = _free_folder(out, force=force)
    path = Path(checkpoint)
    stored = {name: dtype for name, (dtype, _) in checkpoint_info(path).tensors.items()}
    sidecar = Path(config) if config is not None else sidecar_of(path)
    try:
        text = sidecar.read_bytes()
    except OSError as error:
        raise ConfigError(
            "",
            f"{sidecar}: cannot be read ({error})",
            hint="name the config of the model: --config FILE",
        ) from error
    read = AutoConfig.from_json(text, str(sidecar))
    named = read.architectures[0] if read.architectures else None
    head = head_of(named)
    if head is None:
        raise UnsupportedArchitectureError(
            "architectures",
            f"{sidecar}: architectures[0]={named!r}: there are *{', *'.join(_SUFFIXES)}",
            value=named,
        )
    graph = _empty_graph(read, head, stored)
    graph.load_checkpoint(path, check_hash=False, strict=True)
    beside = [path.parent / name for name in TOKENIZER_FILES]
    tokenizer = [file for file in beside if file.is_file()]
    notes = [] if tokenizer else [f"no tokenizer files beside {path.name}: none are written"]
    more = {"config.source.json": text} if preserve_source_config else {}
    return _write(folder, graph, read, head, tokenizer, notes, more)


def sidecar_of(checkpoint: Path) -> Path:
    """Return where the config of a checkpoint lies: ``<stem>.config.json`` beside it."""
    stem = checkpoint.name.removesuffix(".gz").removesuffix(".fdl")
    return checkpoint.with_name(f"{stem}.config.json")


def _loaded(files: FileSet, options: LoadOptions, family: str, head: str) -> tuple[Graph, HfConfig]:
    if head == "base":
        backbone = BACKBONES[family]
        graph, _ = load_backbone(
            files, options, backbone.spec, backbone.config_class, with_pooler=None
        )
        text = graph.source_config
        assert text is not None, "loading sets it"
        return graph, AutoConfig.from_json(text)
    loaded = load_head(files, options, HEADS[head].classes[family].kind())
    return loaded.graph, loaded.config


def _empty_graph(config: HfConfig, head: str, stored: Mapping[str, torch.dtype]) -> Graph:
    """Return a graph of the shape that a checkpoint has; its values are not set."""
    spec = BACKBONES[config.model_type].spec
    with without_values():
        if head == "base":
            pooler = spec.pooler_key is not None and f"{spec.pooler_key}.weight" in stored
            graph = build_backbone(config, spec, with_pooler=pooler)
        else:
            kind = HEADS[head].classes[config.model_type]
            graph = build_head(config, spec, kind.shape, kind.label_count(config))
    give_memory(graph, stored)
    return graph


def _free_folder(out: str | os.PathLike[str], *, force: bool) -> Path:
    folder = Path(out)
    there = [name for name in ("model.safetensors", "config.json") if (folder / name).exists()]
    if there and not force:
        raise WeightsError(
            f"{folder}: already holds {' and '.join(there)}; nothing was written",
            hint="choose another folder, or pass --force",
        )
    return folder


def _write(
    folder: Path,
    graph: Graph,
    config: HfConfig,
    head: str,
    tokenizer: list[Path],
    notes: list[str],
    more: Mapping[str, bytes] | None = None,
) -> Exported:
    """Write everything beside the folder first; only a whole model takes its place."""
    dtypes: set[str] = {str(tensor.dtype) for tensor in graph.state_dict().values()}
    if len(dtypes) == 1:
        config = config.replace(dtype=dtypes.pop().removeprefix("torch."))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise WeightsError(f"{folder}: cannot be written: {error}") from error
    try:
        save_sharded_from(graph, work)
        (work / "config.json").write_text(config.to_json(), encoding="utf-8")
        for path in tokenizer:
            shutil.copyfile(path, work / path.name)
        for name, content in (more or {}).items():
            (work / name).write_bytes(content)
        names = tuple(sorted(path.name for path in work.iterdir()))
        folder.mkdir(exist_ok=True)
        for path in _replaced(folder, names):
            path.unlink()
        for name in names:
            (work / name).replace(folder / name)
    except OSError as error:
        raise WeightsError(f"{folder}: cannot be written: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Exported(folder=folder, head=head, files=names, notes=tuple(notes))


def _replaced(folder: Path, names: tuple[str, ...]) -> list[Path]:
    """Return the files of the model that was there and that no new file takes the place of.

    What is left of them would be read before the new weights, or with the new tokenizer.
    """
    names_once = (WEIGHTS_NAME, INDEX_NAME, "config.source.json")
    old = [*folder.glob("model-*-of-*.safetensors"), *(folder / name for name in names_once)]
    if any(name in TOKENIZER_FILES for name in names):
        old += [folder / name for name in TOKENIZER_FILES]
    return [path for path in old if path.name not in names and path.is_file()]


def summary(exported: Exported) -> dict[str, Any]:
    """Return what an export wrote as JSON values."""
    return {
        "folder": str(exported.folder),
        "head": exported.head,
        "files": list(exported.files),
        "notes": list(exported.notes),
    }
