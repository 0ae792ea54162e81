"""Loading and building a family's backbone, which is a plain graph."""

from __future__ import annotations

import os
from typing import ClassVar, Unpack

import torch

from flodl.graph import Graph
from flodl_hf.config.base import HfConfig
from flodl_hf.encoder.build import build_backbone
from flodl_hf.encoder.spec import FamilySpec
from flodl_hf.errors import HeadError
from flodl_hf.heads.loading import LoadOptions, PretrainedOptions, load_backbone
from flodl_hf.hub.fetch import locate
from flodl_hf.weights.blank import without_values
from flodl_hf.weights.init import initialize, set_sinusoids


class Backbone:
    """Makes backbones of one family; it has no instances, what it makes are graphs."""

    spec: ClassVar[FamilySpec]
    config_class: ClassVar[type[HfConfig]]

    @classmethod
    def build(
        cls,
        config: HfConfig,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        *,
        with_pooler: bool = False,
        generator: torch.Generator | None = None,
    ) -> Graph:
        """Return the backbone with fresh random weights, in training mode.

        Raises:
            HeadError: A pooler was asked for, and the family has none.
        """
        cls._check_pooler(with_pooler)
        with without_values():
            graph = build_backbone(config, cls.spec, with_pooler=with_pooler)
        initialize(
            graph,
            list(graph.state_dict()),
            std=config.initializer_range,
            generator=generator,
            dtype=dtype or torch.float32,
        )
        if getattr(config, "sinusoidal_pos_embds", False):
            set_sinusoids(graph)
        config = config.with_architectures(f"{cls.spec.class_stem}Model")
        graph.set_source_config(config.to_json())
        graph.to(device)
        return graph

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        *,
        with_pooler: bool | None = None,
        **options: Unpack[PretrainedOptions],
    ) -> Graph:
        """Return the backbone with the weights of a directory or of a repository on the Hub.

        It is in evaluation mode. With a pooler a call returns ``[B, H]``, else ``[B, S, H]``;
        ``tagged("hidden")`` has the latter in both cases.

        Args:
            source: A directory, or ``owner/name``.
            with_pooler: Whether to build the pooler; whatever the file has when left out.
            options: See ``PretrainedOptions``.

        Raises:
            HeadError: A pooler was asked for, and the family has none.
            HfError: As ``Head.from_pretrained``.
        """
        cls._check_pooler(bool(with_pooler))
        chosen = LoadOptions(**options)
        graph, _ = load_backbone(
            locate(source, chosen.hub()),
            chosen,
            cls.spec,
            cls.config_class,
            with_pooler=with_pooler,
        )
        return graph

    @classmethod
    def _check_pooler(cls, with_pooler: bool) -> None:
        if with_pooler and cls.spec.pooler_key is None:
            raise HeadError(
                f"with_pooler=True: a {cls.spec.model_type} backbone has no pooler",
                hint="take the first token of what it returns",
            )
