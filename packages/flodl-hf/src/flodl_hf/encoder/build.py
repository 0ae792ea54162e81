"""From a family and a config to the backbone, as a graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from flodl.graph import FlowBuilder, Graph
from flodl_hf.config.albert import AlbertConfig
from flodl_hf.config.base import HfConfig
from flodl_hf.config.deberta import DebertaV2Config
from flodl_hf.encoder.disentangled import Convolution, DisentangledLayer, PairMask, RelativeTable
from flodl_hf.encoder.distances import Distances
from flodl_hf.encoder.embeddings import Embeddings
from flodl_hf.encoder.layer import EncoderLayer
from flodl_hf.encoder.masks import PrepareMask
from flodl_hf.encoder.spec import FamilySpec

_PREPARED = 4096  # tokens; a model without absolute positions may name any number of them


def first_token(x: Tensor) -> Tensor:
    """Return the states of the first token, ``[B, H]``."""
    return x[:, 0]


def build_backbone(config: HfConfig, spec: FamilySpec, *, with_pooler: bool) -> Graph:
    """Return the backbone as a graph, labeled with the family's prefix.

    It returns ``[B, S, H]``, or ``[B, H]`` with a pooler. Tags: ``embeddings``, ``layer_0``, …,
    ``hidden`` and ``pooler``. The last two are kept after a call; ``set_retained`` keeps others,
    which costs a layer's output each.
    """
    kind: Callable[[HfConfig, FamilySpec], FlowBuilder] = _plain
    if isinstance(config, DebertaV2Config):
        kind = _deberta
    elif isinstance(config, AlbertConfig):
        kind = _albert
    flow = kind(config, spec).tag("hidden")
    if with_pooler:
        assert spec.pooler_key is not None, "only heads of families with a pooler ask for one"
        width = config.sizes().hidden
        flow = (
            flow.through(first_token)
            .through(nn.Linear(width, width), key=spec.pooler_key)
            .through(torch.tanh, key="pooler_activation")
            .tag("pooler")
        )
    graph = flow.label(spec.prefix).build()
    graph.set_retained(name for name in graph.tag_names if name in {"hidden", "pooler"})
    return graph


def _begin(spec: FamilySpec, mask: nn.Module) -> FlowBuilder:
    """Return a flow with the inputs, and the mask for the layers as a side branch."""
    flow = FlowBuilder(input_name="input_ids").input(*spec.inputs)
    return flow.fork(mask).using("attention_mask").tag("_mask")


def _plain(config: HfConfig, spec: FamilySpec) -> FlowBuilder:
    sizes = config.sizes()
    flow = (
        _begin(spec, PrepareMask())
        .through(Embeddings(sizes, spec), key="embeddings")
        .using(*spec.inputs)
        .tag("embeddings")
    )
    for index in range(sizes.layers):
        flow = (
            flow.through(EncoderLayer(sizes, spec), key=spec.layer_key.format(i=index))
            .using(mask="_mask")
            .tag(f"layer_{index}")
        )
    return flow


def _albert(config: HfConfig, spec: FamilySpec) -> FlowBuilder:
    assert isinstance(config, AlbertConfig)
    sizes = config.sizes()
    flow = (
        _begin(spec, PrepareMask())
        .through(Embeddings(sizes, spec), key="embeddings")
        .using(*spec.inputs)
        .tag("embeddings")
        .through(
            nn.Linear(sizes.embedding, sizes.hidden), key="encoder.embedding_hidden_mapping_in"
        )
    )
    groups = [
        [EncoderLayer(sizes, spec) for _ in range(config.inner_group_num)]
        for _ in range(config.num_hidden_groups)
    ]
    for index in range(sizes.layers):
        group = config.group_of(index)
        for inner, layer in enumerate(groups[group]):
            key = f"encoder.albert_layer_groups.{group}.albert_layers.{inner}"
            flow = flow.through(layer, key=key).using(mask="_mask")
        flow = flow.tag(f"layer_{index}")
    return flow


def _deberta(config: HfConfig, spec: FamilySpec) -> FlowBuilder:
    assert isinstance(config, DebertaV2Config)
    sizes = config.sizes()
    embeddings = Embeddings(
        sizes,
        spec,
        has_positions=config.position_biased_input,
        width=sizes.hidden,
        masks_output=True,
    )
    flow = (
        _begin(spec, PairMask())
        .through(embeddings, key="embeddings")
        .using(*spec.inputs)
        .tag("embeddings")
    )
    given = {"mask": "_mask"}
    if config.relative_attention:
        distances = Distances(
            span=config.span(),
            buckets=config.position_buckets,
            reach=config.reach(),
            length=min(config.max_position_embeddings, _PREPARED),
        )
        flow = flow.fork(RelativeTable(config, distances), key="encoder").tag("rel")
        flow = flow.fork(distances).tag("_distance")
        given |= {"rel": "rel", "distance": "_distance"}
    elif config.normalizes_table():
        flow = flow.fork(RelativeTable(config, None), key="encoder").tag("rel")
    for index in range(sizes.layers):
        layer = DisentangledLayer(config, spec)
        flow = flow.through(layer, key=f"encoder.layer.{index}").using(**given)
        if index == 0 and config.conv_kernel_size > 0:
            flow = flow.through(Convolution(config), key="encoder.conv")
            flow = flow.using("embeddings", "attention_mask")
        flow = flow.tag(f"layer_{index}")
    return flow
