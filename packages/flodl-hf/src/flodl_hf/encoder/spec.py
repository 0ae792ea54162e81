"""What one family differs in from another: names and switches, no layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerNames:
    """Where the eight parts of a layer stand in it, with dots."""

    query: str
    key: str
    value: str
    output: str
    norm_1: str
    up: str
    down: str
    norm_2: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilySpec:
    """The encoder of one family.

    Attributes:
        model_type: As in ``config.json``.
        class_stem: What class names of the reference begin with, such as ``"XLMRoberta"``.
        prefix: Namespace of the backbone inside a head's checkpoint.
        layer_key: Key of layer ``i``, with ``{i}``.
        layer: Names of a layer's parts.
        positions: ``"absolute"``: 0, 1, …; ``"offset"``: counted from the pad id on, pads apart.
        takes_types: Whether ``token_type_ids`` are an input.
        sums: Tables added to the word table, in this order.
        drops_output: Whether there is dropout after the attention's output.
        drops_ffn: Whether there is dropout after the feed-forward part.
        pooler_key: Key of the pooler's linear layer in the backbone, if there is one.
        mask_token: The mask token of the family's tokenizers.
        sequence_head: From the pooler; from the first token through ``classifier.dense``; through
            ``pre_classifier``; or through a pooler that belongs to the head.
        masked_head: Namespace of the masked language model's head.
    """

    model_type: str
    class_stem: str
    prefix: str
    layer_key: str
    layer: LayerNames
    positions: Literal["absolute", "offset"] = "absolute"
    takes_types: bool = True
    sums: tuple[Literal["type", "position"], ...] = ("type", "position")
    drops_output: bool = True
    drops_ffn: bool = True
    pooler_key: str | None = "pooler.dense"
    mask_token: str = "[MASK]"  # noqa: S105 - a token of texts
    sequence_head: Literal["pooled", "first_token", "pre_classifier", "context"] = "pooled"
    masked_head: Literal["cls", "lm_head", "vocab", "predictions"] = "cls"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the auxiliary inputs of graphs of this family."""
        types = ("token_type_ids",) if self.takes_types else ()
        return ("attention_mask", *types, "position_ids")


BERT_LAYER = LayerNames(
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    output="attention.output.dense",
    norm_1="attention.output.LayerNorm",
    up="intermediate.dense",
    down="output.dense",
    norm_2="output.LayerNorm",
)
