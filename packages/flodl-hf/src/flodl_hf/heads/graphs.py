"""From a family and a config to the graph of a head: the backbone, and what stands on it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from flodl.graph import FlowBuilder, Graph
from flodl_hf.config.base import HfConfig
from flodl_hf.config.deberta import DebertaV2Config
from flodl_hf.encoder.activations import activation
from flodl_hf.encoder.build import build_backbone, first_token
from flodl_hf.encoder.embeddings import Embeddings
from flodl_hf.encoder.spec import FamilySpec
from flodl_hf.errors import ConfigError
from flodl_hf.heads.decoder import Decoder, PredictionHead

Shape = Literal["sequence", "token", "question", "masked"]


def build_head(config: HfConfig, spec: FamilySpec, shape: Shape, labels: int) -> Graph:
    """Return the graph of a head, with ``labels`` classes where the shape has classes.

    Tags: ``logits``, and in the backbone, at ``<prefix>.``, those of ``build_backbone``.
    """
    pooled = shape == "sequence" and spec.sequence_head == "pooled"
    backbone = build_backbone(config, spec, with_pooler=pooled)
    flow = (
        FlowBuilder(backbone, input_name="input_ids", key=spec.prefix)
        .input(*spec.inputs)
        .using(*spec.inputs)
    )
    if shape == "masked":
        flow = _masked(flow, config, spec, backbone)
    elif shape == "sequence":
        flow = _sequence(flow, config, spec, labels)
    else:
        name = "classifier" if shape == "token" else "qa_outputs"
        flow = _dropped(flow, config.head_dropout(shape))
        flow = flow.through(nn.Linear(config.sizes().hidden, labels), key=name)
    return flow.tag("logits").build()


def own_keys(spec: FamilySpec, shape: Shape) -> tuple[str, ...]:
    """Return the beginnings of the keys that belong to a head, not to the pretrained backbone."""
    if shape == "token":
        return ("classifier.",)
    if shape == "question":
        return ("qa_outputs.",)
    if shape == "sequence":
        pooler = f"{spec.prefix}.pooler." if spec.sequence_head == "pooled" else "pooler."
        return ("classifier.", "pre_classifier.", pooler)
    return ("cls.", "lm_head.", "lm_predictions.", "predictions.", "vocab_")


class ContextPooler(nn.Module):
    """DeBERTa's pooler: first token, dropout, dense layer, activation."""

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__()
        self._act = activation(config.pooler_hidden_act)
        self.dropout = nn.Dropout(config.pooler_dropout)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[B, H]`` for states ``[B, S, H]``."""
        return self._act(self.dense(self.dropout(x[:, 0])))


class FirstTokenClassifier(nn.Module):
    """RoBERTa's classifier: first token, dense layer, tanh, scores, and dropout before both."""

    def __init__(self, width: int, labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, labels)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[B, L]`` for states ``[B, S, H]``."""
        x = torch.tanh(self.dense(self.dropout(x[:, 0])))
        scores: Tensor = self.out_proj(self.dropout(x))
        return scores


def _dropped(flow: FlowBuilder, p: float) -> FlowBuilder:
    return flow.through(nn.Dropout(p), key="head_dropout")


def _sequence(flow: FlowBuilder, config: HfConfig, spec: FamilySpec, labels: int) -> FlowBuilder:
    width, p = config.sizes().hidden, config.head_dropout("sequence")
    if spec.sequence_head == "first_token":
        return flow.through(FirstTokenClassifier(width, labels, p), key="classifier")
    if spec.sequence_head == "pre_classifier":
        flow = flow.through(first_token).through(nn.Linear(width, width), key="pre_classifier")
        flow = flow.through(nn.ReLU())
    if spec.sequence_head == "context":
        assert isinstance(config, DebertaV2Config)
        flow = flow.through(ContextPooler(config), key="pooler").tag("pooler")
    return _dropped(flow, p).through(nn.Linear(width, labels), key="classifier")


def _masked(flow: FlowBuilder, config: HfConfig, spec: FamilySpec, backbone: Graph) -> FlowBuilder:
    sizes, is_tied = config.sizes(), config.tie_word_embeddings
    embeddings = backbone.get_submodule("embeddings")
    assert isinstance(embeddings, Embeddings)
    if spec.masked_head == "vocab":
        return (
            flow.through(nn.Linear(sizes.hidden, sizes.hidden), key="vocab_transform")
            .through(activation(sizes.activation), key="vocab_activation")
            .tag("transform")
            .through(nn.LayerNorm(sizes.hidden, eps=sizes.eps), key="vocab_layer_norm")
            .through(
                Decoder(embeddings, sizes, is_tied=is_tied, has_bias=True), key="vocab_projector"
            )
        )
    key, dense, norm = {
        "cls": ("cls.predictions", "transform.dense", "transform.LayerNorm"),
        "lm_head": ("lm_head", "dense", "layer_norm"),
        "predictions": ("predictions", "dense", "LayerNorm"),
    }[spec.masked_head]
    if isinstance(config, DebertaV2Config) and not config.legacy:
        if sizes.embedding != sizes.hidden:
            raise ConfigError(
                "embedding_size",
                f"config embedding_size={sizes.embedding}: the head with legacy=false needs the "
                f"hidden_size, {sizes.hidden}",
                value=sizes.embedding,
            )
        key, dense, norm = "lm_predictions.lm_head", "dense", "LayerNorm"
        is_tied = True  # the reference multiplies with the word table whatever the config says
    head = PredictionHead(
        sizes,
        embeddings,
        dense=dense,
        norm=norm,
        # RoBERTa's head has the erf form, whatever the layers have.
        activation_name="gelu" if spec.masked_head == "lm_head" else sizes.activation,
        is_tied=is_tied,
    )
    return flow.through(head, key=key)
