"""Names of stored tensors, brought to the names that graphs have.

Checkpoints of the same model differ in three ways: old names of norms, a prefix before the
backbone or none, and copies of shared tensors. Pure functions over names; no tensors here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from flodl_hf.errors import KeyCollisionError

Rename = Mapping[str, str] | Callable[[str], str]

PREFIXES = ("bert", "roberta", "distilbert", "albert", "deberta")
HEAD_ROOTS = (
    "classifier",
    "pre_classifier",
    "qa_outputs",
    "cls",
    "lm_head",
    "lm_predictions",
    "predictions",
    "vocab_transform",
    "vocab_layer_norm",
    "vocab_projector",
)
# Stored name of a copy, and the name under which its value is kept.
BIAS_COPIES = {
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "lm_head.decoder.bias": "lm_head.bias",
    "predictions.decoder.bias": "predictions.bias",
}
# Stored names that hold the word table once more.
TABLE_COPIES = (
    "cls.predictions.decoder.weight",
    "lm_head.decoder.weight",
    "predictions.decoder.weight",
    "vocab_projector.weight",
)
WORD_TABLE = "embeddings.word_embeddings.weight"

_OLD_NORM = re.compile(r"(^|\.)LayerNorm\.(gamma|beta)$")
_NEVER_USED = re.compile(
    r"(^|\.)(position_ids|token_type_ids)$|^cls\.seq_relationship\.|^sop_classifier\."
    r"|^mask_predictions\."
)
_POOLER = re.compile(r"^(?:(?:bert|roberta|distilbert|albert|deberta)\.)?pooler\.")
_POSITIONS = re.compile(r"(^|\.)embeddings\.position_embeddings\.")


@dataclass(kw_only=True)
class KeyMap:
    """Where each stored tensor goes.

    Attributes:
        stored: Stored name by the model's name.
        bias_copies: Stored name of a second copy by the model's name; it must be equal.
        table_copies: Stored names of copies of the word table that the model does not have.
        unused: Stored names that fit nowhere.
        ignored: Stored names that are known to mean nothing to this model.
    """

    stored: dict[str, str] = field(default_factory=dict)
    bias_copies: dict[str, str] = field(default_factory=dict)
    table_copies: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def prefix_of(target: Collection[str]) -> str | None:
    """Return the namespace of the backbone among a model's keys, or ``None`` for a backbone."""
    roots = {name.split(".", 1)[0] for name in target}
    return next((prefix for prefix in PREFIXES if prefix in roots), None)


def map_keys(
    stored: Collection[str], target: Collection[str], rename: Rename | None = None
) -> KeyMap:
    """Return where each stored name goes in a model with the keys ``target``.

    Raises:
        KeyCollisionError: Two stored names come to the same name.
    """
    wanted = set(target)
    prefix = prefix_of(wanted)
    result = KeyMap()
    for name in sorted(stored):
        plain = canonical(_renamed(name, rename), wanted, prefix)
        if plain in BIAS_COPIES and plain not in wanted and BIAS_COPIES[plain] in wanted:
            result.bias_copies[BIAS_COPIES[plain]] = name
        elif plain in wanted:
            if plain in result.stored:
                raise KeyCollisionError(
                    f"stored tensors {result.stored[plain]!r} and {name!r} are both {plain!r}",
                    hint="remove one of them, or rename it with rename=",
                )
            result.stored[plain] = name
        elif plain in TABLE_COPIES and _has_decoder(plain, wanted):
            result.table_copies[plain] = name
        elif _means_nothing(plain, wanted, prefix):
            result.ignored.append(name)
        else:
            result.unused.append(name)
    _complete_biases(result, wanted)
    return result


def canonical(name: str, target: Collection[str], prefix: str | None) -> str:
    """Return a stored name with today's norm names, and the prefix that the model has."""
    name = _OLD_NORM.sub(
        lambda found: f"{found[1]}LayerNorm.{'weight' if found[2] == 'gamma' else 'bias'}", name
    )
    if prefix is not None:
        longer = f"{prefix}.{name}"
        return longer if name not in target and longer in target else name
    root, dot, rest = name.partition(".")
    return rest if dot and root in PREFIXES else name


def _renamed(name: str, rename: Rename | None) -> str:
    if rename is None:
        return name
    return rename.get(name, name) if isinstance(rename, Mapping) else rename(name)


def _has_decoder(copy: str, target: Collection[str]) -> bool:
    """Return whether a model has the head whose decoder a stored table belongs to."""
    parent = copy.removesuffix(".weight").removesuffix(".decoder")
    return f"{parent}.bias" in target


def _means_nothing(name: str, target: Collection[str], prefix: str | None) -> bool:
    if _NEVER_USED.search(name) or _POSITIONS.search(name):
        return True
    if _POOLER.match(name):
        return not any(_POOLER.match(key) for key in target)
    return prefix is None and name.split(".", 1)[0] in HEAD_ROOTS


def _complete_biases(result: KeyMap, target: Collection[str]) -> None:
    """Let one stored bias serve both names, where the model has both or the file has the copy."""
    for copy, name in BIAS_COPIES.items():
        if name in result.bias_copies and name not in result.stored:
            result.stored[name] = result.bias_copies.pop(name)
        if copy in target:
            source = result.stored.get(copy) or result.stored.get(name)
            if source is not None:
                result.stored.setdefault(copy, source)
                result.stored.setdefault(name, source)
