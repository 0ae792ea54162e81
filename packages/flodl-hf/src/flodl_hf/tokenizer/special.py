"""Which tokens of a tokenizer pad, mask, begin, separate, and stand for the unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flodl_hf.errors import TokenizerError

AGAIN = "copy or download the file again"

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
    vocabulary: Mapping[str, int],
    *,
    declared: Mapping[str, str],
    stored_pad: str | None,
    configured_pad: int | None = None,
) -> SpecialTokens:
    """Return the special tokens of a vocabulary.

    Args:
        vocabulary: Ids by token.
        declared: What the files beside the tokenizer say, by kind.
        stored_pad: The pad token among the tokenizer's own padding settings, which comes first.
        configured_pad: Its id in the model's config, which comes last.
    """
    found: dict[str, str | None] = {}
    for kind, usual in _USUAL.items():
        candidates = [declared.get(kind), *usual]
        if kind == "pad":
            candidates.insert(0, stored_pad)
        found[kind] = next((token for token in candidates if token in vocabulary), None)
    if found["pad"] is None and configured_pad is not None:
        found["pad"] = next((text for text, i in vocabulary.items() if i == configured_pad), None)
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


def pad_in_config(directory: Path) -> int | None:
    """Return the pad token's id that a model's config in a directory names, or ``None``."""
    value = read_object(directory / "config.json").get("pad_token_id")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON object, or an empty one when there is no such file.

    Raises:
        TokenizerError: The file holds something else.
    """
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerError(f"{path}: no JSON ({error})", hint=AGAIN) from error
    if not isinstance(data, dict):
        raise TokenizerError(
            f"{path}: a JSON {type(data).__name__}, expected an object", hint=AGAIN
        )
    return data
