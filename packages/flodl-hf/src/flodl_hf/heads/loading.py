"""From files to a loaded graph: labels and variants from the weights, then a strict load."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

import torch

from flodl.core.log import warn_once
from flodl.graph import Graph
from flodl_hf.config.base import HfConfig
from flodl_hf.config.deberta import DebertaV2Config
from flodl_hf.encoder.build import build_backbone
from flodl_hf.encoder.spec import FamilySpec
from flodl_hf.errors import ConfigError, HeadError, MissingExtraError
from flodl_hf.heads.files import find_weights
from flodl_hf.heads.graphs import Shape, build_head, own_keys
from flodl_hf.hub.fetch import FileSet, HubOptions
from flodl_hf.tokenizer.tokenizer import HfTokenizer
from flodl_hf.weights.blank import without_values
from flodl_hf.weights.init import initialize
from flodl_hf.weights.keymap import canonical
from flodl_hf.weights.read import LoadRules, load
from flodl_hf.weights.report import HfLoadReport, shortened
from flodl_hf.weights.source import open_source

_log = logging.getLogger(__name__)


class PretrainedOptions(TypedDict, total=False):
    """Options of ``from_pretrained``.

    Attributes:
        revision: Branch, tag or commit on the Hub.
        subfolder: Folder inside the repository or directory.
        cache_dir: Instead of the usual cache.
        local_files_only: Make no request.
        token: For repositories that need one.
        device: Where the parameters go.
        dtype: Cast while reading; the dtypes of the file when left out.
        tokenizer: ``"auto"`` for the one beside the weights if there is one, ``None``, a
            tokenizer, or where to find it.
        num_labels: Number of classes; that of the file when left out.
        id2label: Names of the classes by number.
        problem_type: What the losses and scores of a sequence classifier are.
        new_head: Initialize a head that the file lacks or has in another shape.
        strict: ``"all"`` also refuses stored tensors that the model has no use for.
        attention: How attention is computed; there is one way.
        mmap: Use the mapped file as memory, for inference.
    """

    revision: str | None
    subfolder: str | None
    cache_dir: str | os.PathLike[str] | None
    local_files_only: bool | None
    token: str | bool | None
    device: str | torch.device
    dtype: torch.dtype | None
    tokenizer: HfTokenizer | str | os.PathLike[str] | None
    num_labels: int | None
    id2label: Mapping[int, str] | None
    problem_type: str | None
    new_head: bool
    strict: Literal["model", "all"]
    attention: Literal["sdpa"]
    mmap: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadOptions:
    """``PretrainedOptions`` with their defaults."""

    revision: str | None = None
    subfolder: str | None = None
    cache_dir: str | os.PathLike[str] | None = None
    local_files_only: bool | None = None
    token: str | bool | None = None
    device: str | torch.device = "cpu"
    dtype: torch.dtype | None = None
    tokenizer: HfTokenizer | str | os.PathLike[str] | None = "auto"
    num_labels: int | None = None
    id2label: Mapping[int, str] | None = None
    problem_type: str | None = None
    new_head: bool = False
    strict: Literal["model", "all"] = "model"
    attention: Literal["sdpa"] = "sdpa"
    mmap: bool = False

    def __post_init__(self) -> None:
        if self.attention != "sdpa":
            raise ValueError(f"attention={self.attention!r}: there is 'sdpa'")
        if self.strict not in {"model", "all"}:
            raise ValueError(f"strict={self.strict!r}: there are 'model' and 'all'")
        if self.num_labels is not None and self.num_labels < 1:
            raise ValueError(f"num_labels={self.num_labels}: expected 1 or more")
        if self.id2label is not None:
            self._check_names(self.id2label)
        self._check_device()

    def _check_device(self) -> None:
        try:
            device = torch.device(self.device)
        except RuntimeError as error:
            raise ValueError(f"device={self.device!r}: expected such as 'cpu' or 'cuda'") from error
        count = torch.cuda.device_count() if device.type == "cuda" else 1
        if device.type == "cuda" and (device.index or 0) >= count:
            raise HeadError(
                f"device={str(device)!r}: torch finds {count} GPUs here",
                hint="load on the CPU, or check the driver and that torch was built for CUDA",
            )

    def _check_names(self, names: Mapping[int, str]) -> None:
        if not names or set(names) != set(range(len(names))):
            raise ValueError(f"id2label: keys are {list(names)}: expected 0, 1, …")
        if self.num_labels not in {None, len(names)}:
            raise ValueError(f"id2label names {len(names)} classes, num_labels={self.num_labels}")

    def hub(self) -> HubOptions:
        """Return what concerns finding the files."""
        return HubOptions(
            revision=self.revision,
            subfolder=self.subfolder,
            cache_dir=self.cache_dir,
            local_files_only=self.local_files_only,
            token=self.token,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadKind:
    """Which head of which family is loaded.

    Attributes:
        architecture: The reference's name of the head.
    """

    spec: FamilySpec
    config_class: type[HfConfig]
    shape: Shape
    architecture: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A graph with its weights, and what belongs to it.

    Attributes:
        labels: Outputs of the last layer.
    """

    graph: Graph
    config: HfConfig
    labels: int
    report: HfLoadReport
    tokenizer: HfTokenizer | None


def load_head(files: FileSet, options: LoadOptions, head: HeadKind) -> Loaded:
    """Return the graph of a head with its weights; see ``Head.from_pretrained``."""
    config = _config_in(files, head.config_class)
    weights = find_weights(files)
    shapes = stored_shapes(weights, head.spec)
    config = _with_options(config, options)
    config = _variant(config, head.shape, shapes)
    count = _label_count(config, options, head.shape, shapes)
    _check_layers(config, len(shapes), files)
    with without_values():
        graph = build_head(config, head.spec, head.shape, count)
    own = own_keys(head.spec, head.shape)
    report = _load_weights(graph, weights, files, options, own if options.new_head else ())
    if report.new:
        dtype = options.dtype or _dtype_of(graph, report.loaded)
        initialize(graph, report.new, std=config.initializer_range, dtype=dtype)
        _log.info("%s: initialized %s", files.title, shortened(report.new))
    if report.untied:
        config = config.replace(tie_word_embeddings=False)
    if head.shape in {"sequence", "token"}:
        names = config.labels if config.labels and len(config.labels) == count else None
        config = config.replace(num_labels=count, labels=names)
    config = config.with_architectures(head.architecture)
    graph.to(options.device)
    return Loaded(
        graph=graph,
        config=config,
        labels=count,
        report=report,
        tokenizer=tokenizer_for(files, options),
    )


def load_backbone(
    files: FileSet,
    options: LoadOptions,
    spec: FamilySpec,
    config_class: type[HfConfig],
    *,
    with_pooler: bool | None,
) -> tuple[Graph, HfLoadReport]:
    """Return a backbone with its weights; with a pooler if asked for, or if the file has one."""
    config = _config_in(files, config_class)
    weights = find_weights(files)
    shapes = stored_shapes(weights, None)
    if with_pooler is None:
        has_pooler = f"{spec.pooler_key}.weight" in shapes
        with_pooler = spec.pooler_key is not None and has_pooler
    _check_layers(config, len(shapes), files)
    config = config.with_architectures(f"{spec.class_stem}Model")
    with without_values():
        graph = build_backbone(config, spec, with_pooler=with_pooler)
    report = _load_weights(graph, weights, files, options, ())
    graph.set_source_config(config.to_json())
    graph.to(options.device)
    graph.eval()
    return graph, report


def stored_shapes(weights: Path, spec: FamilySpec | None) -> dict[str, tuple[int, ...]]:
    """Return the shapes of stored tensors by today's names, as a head has them or a backbone."""
    with ExitStack() as stack:
        source = open_source(stack, weights)
        if spec is not None:
            return {canonical(name, (), spec.prefix): source.shape(name) for name in source.names()}
        return {canonical(name, (), None): source.shape(name) for name in source.names()}


def tokenizer_for(files: FileSet, options: LoadOptions) -> HfTokenizer | None:
    """Return the tokenizer that the options ask for, or ``None``."""
    asked = options.tokenizer
    if asked is None or isinstance(asked, HfTokenizer):
        return asked
    if asked != "auto":
        path = Path(asked)
        if path.is_file():
            return HfTokenizer.from_file(path)
        return HfTokenizer.from_pretrained(asked, local_files_only=options.local_files_only)
    try:
        found = HfTokenizer.among(files)
    except MissingExtraError as error:
        _log.info("%s: loaded without a tokenizer: %s", files.title, error.message)
        return None
    if found is None:
        _log.warning(
            "%s: loaded without a tokenizer, there is no file of one: take that of the model's "
            "base repository, tokenizer=HfTokenizer.from_pretrained(...)",
            files.title,
        )
    return found


def _config_in(files: FileSet, config_class: type[HfConfig]) -> HfConfig:
    path = files.require("config.json")
    config = config_class.from_json(path.read_bytes(), str(path))
    if "auto_map" in config.extra:
        warn_once(_log, "%s: auto_map names code of its own, which is never run", files.title)
    return config


def _load_weights(
    graph: Graph, weights: Path, files: FileSet, options: LoadOptions, may_init: tuple[str, ...]
) -> HfLoadReport:
    rules = LoadRules(
        may_init=may_init,
        dtype=options.dtype,
        strict=options.strict == "all",
        mmap=options.mmap,
    )
    report = load(graph, weights, rules)
    report.repo_id, report.revision = files.repo_id, files.revision
    if len(report.dtypes) > 1 and options.dtype is None:
        _log.warning(
            "%s: tensors of %s are kept as they are; dtype= brings them to one",
            files.title,
            " and ".join(sorted(report.dtypes)),
        )
    if report.unused:
        _log.warning(
            "%s: %d stored tensors are not used: %s",
            files.title,
            len(report.unused),
            shortened(report.unused),
        )
    return report


def _with_options(config: HfConfig, options: LoadOptions) -> HfConfig:
    if options.id2label is not None:
        labels = tuple(options.id2label[index] for index in range(len(options.id2label)))
        config = config.replace(labels=labels)
    if options.problem_type is not None:
        config = config.replace(problem_type=options.problem_type)
    return config


def _variant(config: HfConfig, shape: Shape, shapes: Mapping[str, object]) -> HfConfig:
    """Let the file decide which of DeBERTa's two masked heads there is."""
    if not isinstance(config, DebertaV2Config) or shape != "masked":
        return config
    has_new = any(name.startswith("lm_predictions.") for name in shapes)
    has_legacy = any(name.startswith("cls.predictions.") for name in shapes)
    return config.replace(legacy=has_legacy) if has_new != has_legacy else config


def _check_layers(config: HfConfig, tensors: int, files: FileSet) -> None:
    """Refuse more layers than there are tensors before as many are built, which may take hours."""
    count = config.own_layers()
    if count > max(tensors, 1000):
        raise ConfigError(
            "num_hidden_layers",
            f"{files.title}: the config speaks of {count} layers with weights of their own, and "
            f"there are {tensors} tensors in all",
            value=count,
            hint="take config.json from beside the weights",
        )


def _label_count(
    config: HfConfig,
    options: LoadOptions,
    shape: Shape,
    shapes: Mapping[str, tuple[int, ...]],
) -> int:
    """Return the outputs of the last layer: as asked, else as stored, else as configured."""
    if shape == "masked":
        return 0
    if options.num_labels is not None:
        return options.num_labels
    if options.id2label is not None and shape != "question":
        return len(options.id2label)
    names = (
        ("qa_outputs.weight",)
        if shape == "question"
        else (
            "classifier.weight",
            "classifier.out_proj.weight",
        )
    )
    stored = next((shapes[name][0] for name in names if shapes.get(name)), 0)
    if stored > 0:
        return stored
    return 2 if shape == "question" else config.label_count()


def _dtype_of(graph: Graph, loaded: list[str]) -> torch.dtype:
    state = graph.state_dict()
    return next((state[name].dtype for name in loaded), torch.float32)
