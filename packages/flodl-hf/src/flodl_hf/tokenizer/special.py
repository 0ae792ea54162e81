"""Which tokens of a tokenizer pad, mask, begin, separate, and stand for the unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_USUAL = {
    "pad": ("[PAD]", "<pad>"),
    "mask": ("[MASK]", "<mask>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "unk": ("[UNK]", "<unk>"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecialTokens:
    """Texts of the special tokens; ``None`` where the tokenizer has none."""

    pad: str | None = None
    mask: str | None = None
    cls: str | None = None
    sep: str | None = None
    unk: str | None = None


def find_special(
    vocabulary: Mapping[str, int], *, declared: Mapping[str, str], stored_pad: str | None
) -> SpecialTokens:
    """Return the special tokens of a vocabulary.

    Args:
        vocabulary: Ids by token.
        declared: What the files beside the tokenizer say, by kind.
        stored_pad: The pad token among the tokenizer's own padding settings, which comes first.
    """
    found: dict[str, str | None] = {}
    for kind, usual in _USUAL.items():
        candidates = [declared.get(kind), *usual]
        if kind == "pad":
            candidates.insert(0, stored_pad)
        found[kind] = next((token for token in candidates if token in vocabulary), None)
    return SpecialTokens(**found)


def declared_in(directory: Path) -> dict[str, str]:
    """Return the special tokens that files in a directory declare, by kind."""
    declared: dict[str, str] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        data = read_object(directory / name)
        for kind in _USUAL:
            token = data.get(f"{kind}_token")
            text = token.get("content") if isinstance(token, Mapping) else token
            if isinstance(text, str):
                declared[kind] = text
    return declared


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON object, or an empty one when there is no such file."""
    if not path.is_file():
        return {}
    data = json.loads(path.read_text(encoding="utf-8"))
    return data if isinstance(data, dict) else {}
