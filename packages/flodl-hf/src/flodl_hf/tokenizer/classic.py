"""Fast tokenizers from the older files: ``vocab.txt``, or ``vocab.json`` with ``merges.txt``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flodl_hf.extras import load_extra
from flodl_hf.tokenizer.special import read_object


def has_classic_files(directory: Path) -> bool:
    """Return whether a directory has the files of a BERT or a RoBERTa tokenizer."""
    pair = (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file()
    return pair or (directory / "vocab.txt").is_file()


def from_classic_files(directory: Path) -> Any:
    """Return a ``tokenizers.Tokenizer`` made of the files in a directory."""
    settings = read_object(directory / "tokenizer_config.json")
    if (directory / "vocab.txt").is_file():
        return _word_pieces(directory / "vocab.txt", settings)
    return _byte_pairs(directory, settings)


def _word_pieces(path: Path, settings: dict[str, Any]) -> Any:
    lib = load_extra("tokenizers", "full")
    tokens = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    inner = lib.Tokenizer(lib.models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106
    inner.normalizer = lib.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
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
    prefixed = settings.get("add_prefix_space", False)
    model = lib.models.BPE.from_file(
        str(directory / "vocab.json"),
        str(directory / "merges.txt"),
        continuing_subword_prefix="",
        end_of_word_suffix="",
    )
    inner = lib.Tokenizer(model)
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
