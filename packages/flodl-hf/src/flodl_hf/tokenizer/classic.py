"""Fast tokenizers from the older files: ``vocab.txt``, or ``vocab.json`` with ``merges.txt``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flodl_hf.errors import TokenizerError
from flodl_hf.extras import load_extra
from flodl_hf.tokenizer.special import AGAIN, read_object


def has_classic_files(directory: Path) -> bool:
    """Return whether a directory has the files of a BERT or a RoBERTa tokenizer."""
    pair = (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file()
    return pair or (directory / "vocab.txt").is_file()


def from_classic_files(directory: Path) -> Any:
    """Return a ``tokenizers.Tokenizer`` made of the files in a directory.

    Raises:
        TokenizerError: The files are damaged, or lack the special tokens.
    """
    settings = read_object(directory / "tokenizer_config.json")
    if (directory / "vocab.txt").is_file():
        return _word_pieces(directory / "vocab.txt", settings)
    return _byte_pairs(directory, settings)


def _setting(settings: dict[str, Any], name: str, usual: bool | None) -> bool | None:
    value = settings.get(name, usual)
    if value is not None and not isinstance(value, bool):
        raise TokenizerError(f"tokenizer_config.json {name}={value!r}: expected true or false")
    return value


def _need(vocabulary: Mapping[str, int], tokens: Sequence[str], path: Path) -> None:
    missing = [token for token in tokens if token not in vocabulary]
    if missing:
        raise TokenizerError(f"{path}: has no token {', '.join(missing)}", hint=AGAIN)


def _word_pieces(path: Path, settings: dict[str, Any]) -> Any:
    lib = load_extra("tokenizers", "full")
    try:
        tokens = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{path}: no list of tokens ({error})", hint=AGAIN) from error
    vocabulary = {token: index for index, token in enumerate(tokens)}
    _need(vocabulary, ("[UNK]", "[CLS]", "[SEP]"), path)
    inner = lib.Tokenizer(lib.models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106
    inner.normalizer = lib.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=_setting(settings, "tokenize_chinese_chars", True),
        strip_accents=_setting(settings, "strip_accents", None),
        lowercase=_setting(settings, "do_lower_case", True),
    )
    inner.pre_tokenizer = lib.pre_tokenizers.BertPreTokenizer()
    inner.decoder = lib.decoders.WordPiece(prefix="##")
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    inner.add_special_tokens([token for token in specials if token in vocabulary])
    inner.post_processor = lib.processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    return inner


def _byte_pairs(directory: Path, settings: dict[str, Any]) -> Any:
    lib = load_extra("tokenizers", "full")
    prefixed = _setting(settings, "add_prefix_space", False)
    path = directory / "vocab.json"
    try:
        model = lib.models.BPE.from_file(
            str(path),
            str(directory / "merges.txt"),
            continuing_subword_prefix="",
            end_of_word_suffix="",
        )
    except Exception as error:  # the library raises the bare class
        raise TokenizerError(f"{path}: cannot be read ({error})", hint=AGAIN) from error
    inner = lib.Tokenizer(model)
    _need(inner.get_vocab(), ("<s>", "<pad>", "</s>", "<unk>"), path)
    inner.pre_tokenizer = lib.pre_tokenizers.ByteLevel(add_prefix_space=prefixed)
    inner.decoder = lib.decoders.ByteLevel()
    mask = lib.AddedToken("<mask>", lstrip=True, special=True)
    inner.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", mask])
    inner.post_processor = lib.processors.RobertaProcessing(
        ("</s>", inner.token_to_id("</s>")),
        ("<s>", inner.token_to_id("<s>")),
        trim_offsets=True,
        add_prefix_space=prefixed,
    )
    return inner
