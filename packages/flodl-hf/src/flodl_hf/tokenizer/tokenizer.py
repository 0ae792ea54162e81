"""HfTokenizer: texts in, padded tensors out, over the ``tokenizers`` library."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from flodl.checkpoint import write_atomically
from flodl_hf.errors import NoPadTokenError, TokenizerError
from flodl_hf.extras import load_extra
from flodl_hf.hub.fetch import FileSet, HubOptions, locate
from flodl_hf.tokenizer.classic import from_classic_files, has_classic_files
from flodl_hf.tokenizer.encoded import EncodedBatch, Row
from flodl_hf.tokenizer.given import (
    Truncation,
    checked_pairs,
    checked_texts,
    strategy_of,
    surrogate_row,
)
from flodl_hf.tokenizer.special import (
    AGAIN,
    SpecialTokens,
    declared_in,
    find_special,
    pad_in_config,
)

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spm.model",
)


class HfTokenizer:
    """Encodes texts for a model.

    Padding and truncation that a ``tokenizer.json`` stores are not applied: nothing is cut unless
    a call asks for it, and a batch is padded to its longest text. ``save`` writes the settings
    back as they were.

    Args:
        inner: A ``tokenizers.Tokenizer``; it is copied.
        declared: Special tokens by kind (``pad``, ``mask``, ``cls``, ``sep``, ``unk``), where the
            files beside it name them.
        configured_pad: The pad token's id in the model's config, for when nothing else names it.
    """

    def __init__(
        self,
        inner: Any,
        *,
        declared: dict[str, str] | None = None,
        configured_pad: int | None = None,
    ) -> None:
        lib = load_extra("tokenizers", "full")
        self._stored = (inner.padding, inner.truncation)
        self.inner = lib.Tokenizer.from_str(inner.to_str())
        self.inner.no_padding()
        self.inner.no_truncation()
        self._lock = Lock()  # truncation is a setting of the shared object
        padding = inner.padding or {}
        self.pads_left: bool = padding.get("direction", "right") == "left"
        vocabulary = self.inner.get_vocab(with_added_tokens=True)
        self.highest_id: int = max(vocabulary.values(), default=-1)
        self.special: SpecialTokens = find_special(
            vocabulary,
            declared=declared or {},
            stored_pad=padding.get("pad_token"),
            configured_pad=configured_pad,
        )

    # ------------------------------------------------------------- where it comes from

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> HfTokenizer:
        """Return the tokenizer in a ``tokenizer.json``.

        Raises:
            TokenizerError: The file is none.
        """
        inner, folder = _read_inner(Path(path)), Path(path).parent
        return cls(inner, declared=declared_in(folder), configured_pad=pad_in_config(folder))

    @classmethod
    def from_inner(cls, inner: Any) -> HfTokenizer:
        """Return a tokenizer over a ``tokenizers.Tokenizer``, which is copied."""
        return cls(inner)

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        *,
        revision: str | None = None,
        subfolder: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_files_only: bool | None = None,
        token: str | bool | None = None,
    ) -> HfTokenizer:
        """Return the tokenizer of a directory or a repository on the Hub.

        Raises:
            TokenizerError: It has no files that a fast tokenizer can be made of.
            HubError: They cannot be had.
        """
        options = HubOptions(
            revision=revision,
            subfolder=subfolder,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            token=token,
        )
        return cls.from_files(locate(source, options))

    @classmethod
    def from_files(cls, files: FileSet) -> HfTokenizer:
        """Return the tokenizer among the files of a model.

        Raises:
            TokenizerError: There are no files that a fast tokenizer can be made of, or they are
                damaged.
        """
        found = cls.among(files)
        if found is None:
            raise TokenizerError(
                f"{files.title}: no tokenizer.json, vocab.txt, or vocab.json with merges.txt",
                hint="take the tokenizer of the model's base repository: "
                "HfTokenizer.from_pretrained(...)",
            )
        return found

    @classmethod
    def among(cls, files: FileSet) -> HfTokenizer | None:
        """Return the tokenizer among the files of a model, or ``None`` where there is none.

        Raises:
            TokenizerError: Its files are damaged.
        """
        load_extra("tokenizers", "full")
        found = [path for name in TOKENIZER_FILES[:7] if (path := files.find(name)) is not None]
        folder = found[0].parent if found else Path()
        names = {path.name for path in found}
        if "tokenizer.json" in names:
            inner = _read_inner(folder / "tokenizer.json")
        elif has_classic_files(folder) and names & {"vocab.txt", "vocab.json"}:
            inner = from_classic_files(folder)
        else:
            return None
        files.find("config.json")  # on the Hub: brought into the same folder
        return cls(inner, declared=declared_in(folder), configured_pad=pad_in_config(folder))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a ``tokenizer.json`` with the padding and truncation it was loaded with."""
        lib = load_extra("tokenizers", "full")
        copy = lib.Tokenizer.from_str(self.inner.to_str())
        padding, truncation = self._stored
        if padding is not None:
            copy.enable_padding(**padding)
        if truncation is not None:
            copy.enable_truncation(**truncation)
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "tokenizer.json"
            copy.save(str(written), pretty=True)
            with write_atomically(path) as file:
                file.write(written.read_bytes())

    # ------------------------------------------------------------- single tokens

    @property
    def pad_id(self) -> int | None:
        """Id of the pad token, or ``None``."""
        return None if self.special.pad is None else self.token_to_id(self.special.pad)

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token, or ``None``."""
        found: int | None = self.inner.token_to_id(token)
        return found

    def id_to_token(self, index: int) -> str:
        """Return the token of an id.

        Raises:
            TokenizerError: There is no such id.
        """
        token: str | None = self.inner.id_to_token(index) if index >= 0 else None
        if token is None:
            raise TokenizerError(f"id {index}: the tokenizer has 0 to {self.highest_id}")
        return token

    def decode(self, ids: Sequence[int] | Tensor, *, skip_special_tokens: bool = True) -> str:
        """Return the text of token ids."""
        plain = ids.tolist() if isinstance(ids, Tensor) else list(ids)
        text: str = self.inner.decode(plain, skip_special_tokens=skip_special_tokens)
        return text

    # ------------------------------------------------------------- encoding

    def encode(
        self,
        texts: Sequence[str],
        *,
        device: str | torch.device = "cpu",
        truncation: bool | Truncation = False,
        max_length: int | None = None,
        pad_to: int | None = None,
        pad_to_multiple_of: int | None = None,
        add_special_tokens: bool = True,
    ) -> EncodedBatch:
        """Return texts as a batch, padded to the longest.

        Args:
            texts: One text for each row.
            device: Where the tensors go.
            truncation: Cut what is longer than ``max_length``; nothing is cut otherwise.
            max_length: Tokens, specials counted.
            pad_to: Pad to this many tokens at least.
            pad_to_multiple_of: Pad to a multiple of this.
            add_special_tokens: Add the tokens that begin and end a text.

        Raises:
            TypeError: A single string, or something in the list that is none.
            EmptyBatchError: There are no texts.
            NoPadTokenError: Lengths differ, and there is no pad token.
        """
        given = [(text,) for text in checked_texts(texts, "encode")]
        rows = self.rows(
            given,
            strategy_of(truncation, max_length),
            max_length,
            add_special_tokens=add_special_tokens,
        )
        return self.padded(rows, pad_to, pad_to_multiple_of).to(device)

    def encode_pairs(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        device: str | torch.device = "cpu",
        truncation: bool | Truncation = False,
        max_length: int | None = None,
        stride: int | None = None,
        pad_to: int | None = None,
        pad_to_multiple_of: int | None = None,
    ) -> EncodedBatch:
        """Return pairs of texts as a batch; see ``encode``.

        Args:
            pairs: First and second text of each row.
            device: Where the tensors go.
            truncation: Which text of a pair is cut; ``"only_second"`` for questions.
            max_length: Tokens, specials counted.
            stride: Make further rows of what was cut, which repeat this many tokens.
            pad_to: Pad to this many tokens at least.
            pad_to_multiple_of: Pad to a multiple of this.

        Raises:
            TypeError: A string, or something that is no pair of strings.
            EmptyBatchError: There are no pairs.
            NoPadTokenError: Lengths differ, and there is no pad token.
        """
        given = checked_pairs(pairs)
        rows = self.rows(
            given,
            strategy_of(truncation, max_length, stride),
            max_length,
            stride=stride,
        )
        return self.padded(rows, pad_to, pad_to_multiple_of).to(device)

    def rows(
        self,
        inputs: Sequence[tuple[str, ...]],
        strategy: Truncation | None = None,
        max_length: int | None = None,
        *,
        stride: int | None = None,
        add_special_tokens: bool = True,
    ) -> list[Row]:
        """Return texts, or pairs of them, encoded but not padded; with ``stride`` in windows.

        Raises:
            TokenizerError: A text cannot be encoded.
        """
        encodings = self._encode(
            inputs, strategy, max_length, stride=stride or 0, add_special_tokens=add_special_tokens
        )
        rows = []
        for index, encoding in enumerate(encodings):
            parts = [encoding] if stride is None else [encoding, *encoding.overflowing]
            rows += [
                Row(
                    ids=part.ids,
                    types=part.type_ids,
                    sequences=part.sequence_ids,
                    words=part.word_ids,
                    offsets=part.offsets,
                    source=index,
                    texts=inputs[index],
                )
                for part in parts
            ]
        return rows

    def _encode(
        self,
        inputs: Sequence[tuple[str, ...]],
        strategy: Truncation | None,
        max_length: int | None,
        *,
        stride: int,
        add_special_tokens: bool,
    ) -> list[Any]:
        plain = [texts[0] if len(texts) == 1 else texts for texts in inputs]
        with self._lock:
            try:
                if strategy is not None and max_length is not None:
                    self._cut(plain, strategy, max_length, stride, add_special_tokens)
                return list(self.inner.encode_batch(plain, add_special_tokens=add_special_tokens))
            except (UnicodeEncodeError, TypeError) as error:
                raise TokenizerError(
                    f"text {surrogate_row(inputs)} holds a lone surrogate, which is no character",
                    hint="clean it: text.encode('utf-8', 'replace').decode('utf-8')",
                ) from error
            except (TokenizerError, ValueError):
                raise
            except Exception as error:  # the library raises the bare class
                how = f", truncation={strategy!r} to {max_length} tokens" if strategy else ""
                raise TokenizerError(
                    f"a text cannot be encoded{how}: {error}",
                    hint="raise max_length, or let the other text be cut" if strategy else None,
                ) from error
            finally:
                self.inner.no_truncation()

    def _cut(
        self,
        plain: Sequence[object],
        strategy: Truncation,
        max_length: int,
        stride: int,
        add_special_tokens: bool,
    ) -> None:
        """Let the library cut the texts that it is given next."""
        is_pair = any(isinstance(texts, tuple) for texts in plain)
        specials = self.inner.num_special_tokens_to_add(is_pair) if add_special_tokens else 0
        if max_length < specials:
            raise ValueError(f"max_length={max_length}: the specials alone are {specials} tokens")
        if stride > 0:  # the library would crash over a window that is no longer than its overlap
            cut = 0 if strategy == "only_first" else 1
            encodings = enumerate(self.inner.encode_batch(plain))
            long = [(index, whole) for index, whole in encodings if len(whole.ids) > max_length]
            for index, whole in long:
                others = sum(part != cut for part in whole.sequence_ids)
                if max_length - others <= stride:
                    raise TokenizerError(
                        f"text {index}: {others} tokens are not cut, which leaves "
                        f"{max(0, max_length - others)} of {max_length} for a window, and "
                        f"stride={stride} of them would be repeated",
                        hint="lower stride, raise max_length, or shorten the other text",
                    )
            if not long:
                return
        self.inner.enable_truncation(max_length, stride=stride, strategy=strategy)

    def padded(
        self,
        rows: list[Row],
        pad_to: int | None = None,
        multiple: int | None = None,
        *,
        on_left: bool | None = None,
    ) -> EncodedBatch:
        """Return rows as a batch, padded to the longest, to ``pad_to``, or to a multiple.

        The pads are on the side that the tokenizer's file says, unless ``on_left`` is given.

        Raises:
            NoPadTokenError: Lengths differ, and there is no pad token.
        """
        longest = max(pad_to or 0, *(len(row.ids) for row in rows))
        if multiple is not None:
            if multiple < 1:
                raise ValueError(f"pad_to_multiple_of={multiple}: expected 1 or more")
            longest = -(-longest // multiple) * multiple
        pad = self.pad_id
        short = next((i for i, row in enumerate(rows) if len(row.ids) < longest), None)
        if pad is None and short is not None:
            raise NoPadTokenError(
                f"text {short} has {len(rows[short].ids)} tokens, the batch {longest}, and the "
                "tokenizer has no pad token",
                hint="encode texts one by one, or name the token: HfTokenizer(inner, "
                "declared={'pad': '<pad>'})",
            )
        side = self.pads_left if on_left is None else on_left
        return EncodedBatch.of(rows, pad=pad or 0, length=longest, on_left=side)


def _read_inner(path: Path) -> Any:
    lib = load_extra("tokenizers", "full")
    try:
        return lib.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises the bare class
        hint = AGAIN if path.is_file() else "name a tokenizer.json"
        raise TokenizerError(f"{path}: no tokenizer ({error})", hint=hint) from error
