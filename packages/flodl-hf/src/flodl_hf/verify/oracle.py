"""The reference library as an oracle: seeded checkpoints that it writes, and what it computes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from flodl_hf.errors import VerifyError
from flodl_hf.extras import load_extra

Head = Literal["base", "mlm", "seqcls", "tokcls", "qa"]

SUFFIXES: dict[str, str] = {
    "base": "Model",
    "mlm": "ForMaskedLM",
    "seqcls": "ForSequenceClassification",
    "tokcls": "ForTokenClassification",
    "qa": "ForQuestionAnswering",
}
STEMS = {
    "bert": "Bert",
    "roberta": "Roberta",
    "distilbert": "DistilBert",
    "xlm-roberta": "XLMRoberta",
    "albert": "Albert",
    "deberta-v2": "DebertaV2",
}
STD = 0.3
"""Spread of the weights; with the usual 0.02 a lost bias or a wrong activation would not show."""

_TINY = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
_TINY_DISTILBERT = {
    "vocab_size": 99,
    "dim": 32,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 37,
    "max_position_embeddings": 64,
}
_V3 = {
    "relative_attention": True,
    "position_buckets": 16,
    "max_relative_positions": 32,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A model that the oracle is asked to make.

    Attributes:
        family: ``model_type``.
        head: Which of the five shapes.
        changes: Keys of the config that differ from the tiny one.
        seed: Of the weights.
        labels: Classes of a classifier.
    """

    family: str
    head: Head
    changes: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    labels: int = 3


def library() -> Any:
    """Return the reference library.

    Raises:
        MissingExtraError: It is not installed.
    """
    return load_extra("transformers", "verify")


def tiny_config(sample: Sample) -> Any:
    """Return the oracle's config of a sample."""
    sizes = dict(_TINY_DISTILBERT if sample.family == "distilbert" else _TINY)
    if sample.family == "albert":
        sizes["embedding_size"] = 16
    extra = _V3 if sample.family == "deberta-v2" else {}
    labels = 2 if sample.head == "qa" else sample.labels
    config_class = getattr(library(), f"{STEMS[sample.family]}Config")
    return config_class(**{**sizes, **extra, **sample.changes}, num_labels=labels)


def make_model(sample: Sample) -> Any:
    """Return the oracle's model of a sample, its weights redrawn, in evaluation mode."""
    model_class = getattr(library(), STEMS[sample.family] + SUFFIXES[sample.head])
    model = model_class(tiny_config(sample)).eval()
    generator = torch.Generator().manual_seed(sample.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, STD, generator=generator)
            if name.lower().replace("_", "").endswith("layernorm.weight") or "norm.weight" in name:
                parameter.add_(1)
    return model


def write_reference(sample: Sample, directory: str | os.PathLike[str]) -> Any:
    """Let the oracle save a sample; return its model."""
    model = make_model(sample)
    with _quiet():
        model.save_pretrained(Path(directory))
    return model


def load_oracle(source: str | os.PathLike[str], head: Head) -> tuple[Any, set[str], set[str]]:
    """Return the oracle's model of a directory or repository, and what keys it misses or has not.

    Raises:
        VerifyError: It cannot load it.
    """
    lib = library()
    kinds = {
        "base": "AutoModel",
        "mlm": "AutoModelForMaskedLM",
        "seqcls": "AutoModelForSequenceClassification",
        "tokcls": "AutoModelForTokenClassification",
        "qa": "AutoModelForQuestionAnswering",
    }
    try:
        with _quiet():
            model, info = getattr(lib, kinds[head]).from_pretrained(
                source, output_loading_info=True, dtype=torch.float32
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise VerifyError(
            f"{source}: transformers cannot load it with {kinds[head]}: {reason}"
        ) from error
    return model.eval(), set(info["missing_keys"]), set(info["unexpected_keys"])


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's bars and reports back in the ``with`` block: the caller looks itself."""
    log = library().utils.logging
    level, has_bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    _set_bars(log, shown=False)
    try:
        yield
    finally:
        log.set_verbosity(level)
        _set_bars(log, shown=has_bars)


def _set_bars(log: Any, *, shown: bool) -> None:
    with warnings.catch_warnings(action="ignore"):  # of a variable that has the last word
        (log.enable_progress_bar if shown else log.disable_progress_bar)()


def outputs_of(model: Any, head: Head, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what the oracle computes, by name: ``hidden`` and ``pooler``, or ``logits``."""
    with torch.no_grad():
        out = model(**inputs)
    if head == "base":
        found = {"hidden": out.last_hidden_state}
        pooled = getattr(out, "pooler_output", None)
        return found if pooled is None else {**found, "pooler": pooled}
    if head == "qa":
        return {"logits": torch.stack([out.start_logits, out.end_logits], dim=-1)}
    return {"logits": out.logits}
