"""The same model twice: the reference's, and flodl-hf's with the same weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from flodl_hf import AutoModelForSequenceClassification
from flodl_hf.extras import load_extra

STEMS = {
    "bert": "Bert",
    "roberta": "Roberta",
    "distilbert": "DistilBert",
    "albert": "Albert",
    "deberta-v2": "DebertaV2",
}
_LAYERS = {"distilbert": "n_layers"}
_V3 = {
    "relative_attention": True,
    "position_buckets": 256,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}
_LABELS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One family at one size.

    Attributes:
        reference: The reference's classifier, with its fastest attention.
        ours: flodl-hf's, with the same weights.
    """

    family: str
    reference: nn.Module
    ours: nn.Module
    vocab_size: int

    def batch(self, size: int, length: int, device: torch.device) -> dict[str, Tensor]:
        """Return texts of unequal length, padded to ``length``, with labels."""
        generator = torch.Generator().manual_seed(size * 10_000 + length)
        ids = torch.randint(5, min(self.vocab_size, 30_000), (size, length), generator=generator)
        lengths = torch.randint(max(1, length // 2), length + 1, (size, 1), generator=generator)
        lengths[0] = length
        mask = (torch.arange(length)[None, :] < lengths).long()
        labels = torch.randint(0, _LABELS, (size,), generator=generator)
        given = {"input_ids": ids * mask, "attention_mask": mask, "labels": labels}
        return {name: value.to(device) for name, value in given.items()}

    def logits(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return what both compute for a batch."""
        given = {name: batch[name] for name in ("input_ids", "attention_mask")}
        return self.reference(**given).logits, self.ours(**given)


def oracle_config(family: str, layers: int, **changes: Any) -> Any:
    """Return the reference's config of a family at base width."""
    lib = load_extra("transformers", "verify")
    sizes = {_LAYERS.get(family, "num_hidden_layers"): layers, "num_labels": _LABELS}
    if family == "albert":
        sizes |= {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
    if family == "roberta":
        sizes |= {"max_position_embeddings": 514}
    extra = _V3 if family == "deberta-v2" else {}
    return getattr(lib, f"{STEMS[family]}Config")(**{**sizes, **extra, **changes})


def write_checkpoint(family: str, layers: int, folder: Path, **changes: Any) -> Any:
    """Let the reference save a seeded classifier, and return it."""
    lib = load_extra("transformers", "verify")
    torch.manual_seed(0)
    attention = "eager" if family == "deberta-v2" else "sdpa"  # it has no other for DeBERTa
    config = oracle_config(family, layers, **changes)
    kind = getattr(lib, f"{STEMS[family]}ForSequenceClassification")
    model = kind._from_config(config, attn_implementation=attention)  # noqa: SLF001 - the only way to choose
    model.save_pretrained(folder)
    return model


def make_pair(
    family: str, layers: int, folder: Path, device: torch.device, dtype: torch.dtype, **changes: Any
) -> Pair:
    """Return both models, on a device and in a dtype."""
    reference = write_checkpoint(family, layers, folder, **changes).to(device, dtype)
    ours = AutoModelForSequenceClassification.from_pretrained(
        folder, tokenizer=None, device=device, dtype=dtype
    )
    return Pair(
        family=family,
        reference=reference,
        ours=ours,
        vocab_size=int(reference.config.vocab_size),
    )
