import pytest
import torch

from flodl_hf import (
    AutoModelForSequenceClassification,
    EmptyBatchError,
    HeadError,
    HfTokenizer,
    SequenceTooLongError,
)
from flodl_hf.data import (
    MlmCollator,
    MlmDataset,
    PairDataset,
    TextDataset,
    TokenDataset,
    align_labels,
)
from flodl_hf.data.datasets import Lengths


@pytest.fixture
def tokenizer(small_tokenizer):
    return HfTokenizer.from_inner(small_tokenizer())


def test_labels_of_words_go_to_their_first_tokens(tokenizer):
    texts = ["the foxs jumping", "paris"]
    enc = tokenizer.encode(["jumps cats in paris", "fox"])
    labels = align_labels(enc, [[1, 2, 3, 4], [5]])
    pieces = [tokenizer.id_to_token(index) for index in enc.input_ids[0].tolist()]
    assert pieces == ["[CLS]", "jumps", "cat", "##s", "in", "paris", "[SEP]"]
    assert labels[0].tolist() == [-100, 1, 2, -100, 3, 4, -100]
    assert labels[1].tolist() == [-100, 5, -100, -100, -100, -100, -100]
    every = align_labels(enc, [[1, 2, 3, 4], [5]], only_first=False)
    assert every[0].tolist() == [-100, 1, 2, 2, 3, 4, -100]
    with pytest.raises(HeadError, match="text 1 has 1 words for the tokenizer, and 2 labels"):
        align_labels(enc, [[1, 2, 3, 4], [5, 6]])
    assert len(texts) == 2


def test_batches_are_padded_to_buckets(tokenizer):
    data = TextDataset([("the fox", 0), ("the " * 40, 1), ("a", 2)], tokenizer)
    short = data.get_batch(torch.tensor([0, 2]))
    assert short["input_ids"].shape == (2, 32)
    assert data.get_batch(torch.tensor([0, 1]))["input_ids"].shape == (2, 64)
    assert short["labels"].tolist() == [0, 2]
    alone = tokenizer.encode(["the fox"]).input_ids[0].tolist()
    assert short["input_ids"][0, :4].tolist() == alone
    assert len(data) == 3


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_tokenizer_that_pads_on_the_left_trains_what_it_predicts(saved, small_tokenizer, family):
    inner = small_tokenizer(family)
    pad = "<pad>" if family == "roberta" else "[PAD]"
    inner.enable_padding(direction="left", pad_id=inner.token_to_id(pad), pad_token=pad)
    tokenizer = HfTokenizer.from_inner(inner)
    folder, _ = saved(family, "seqcls")
    head = AutoModelForSequenceClassification.from_pretrained(folder, tokenizer=tokenizer)
    rows = [("the fox sat in paris", 0), ("a cat", 1)]
    given = tokenizer.encode([text for text, _ in rows])
    assert given.static["pads_left"]
    batch = TextDataset(rows, tokenizer).get_batch(torch.tensor([0, 1]))
    with torch.no_grad():
        torch.testing.assert_close(head.forward_encoded(batch), head.forward_encoded(given))


def test_texts_are_cut_only_on_request(tokenizer):
    rows = [("the " * 40, 0)]
    with pytest.raises(SequenceTooLongError) as caught:
        TextDataset(rows, tokenizer, lengths=Lengths(buckets=(32,)))
    assert (caught.value.length, caught.value.limit) == (42, 32)
    cut = TextDataset(rows, tokenizer, lengths=Lengths(max_length=16, buckets=(16, 32)))
    assert cut.get_batch(torch.tensor([0]))["input_ids"].shape == (1, 16)
    with pytest.raises(EmptyBatchError):
        TextDataset([], tokenizer)


def test_answers_become_tokens(tokenizer):
    context = "the cat sat in paris ."
    rows = [("where ?", context, (15, 20)), ("who ?", context, (4, 7)), ("x", context, (0, 22))]
    data = PairDataset(rows, tokenizer)
    batch = data.get_batch(torch.arange(3))
    for row, (start, end) in enumerate(
        zip(batch["start_positions"].tolist(), batch["end_positions"].tolist(), strict=True)
    ):
        tokens = tokenizer.decode(batch["input_ids"][row, start : end + 1])
        place = rows[row][2]
        assert tokens.replace(" .", ".") == context[slice(*place)].replace(" .", ".")
    cut = PairDataset(rows, tokenizer, lengths=Lengths(max_length=9))
    assert cut.get_batch(torch.arange(1))["start_positions"].item() > 512


def test_pairs_with_a_label_keep_it(tokenizer):
    batch = PairDataset([("a", "b", 1), ("a", "fox", 0)], tokenizer).get_batch(torch.arange(2))
    assert batch["labels"].tolist() == [1, 0]
    assert batch["token_type_ids"].max() == 1


def test_words_carry_their_labels(tokenizer):
    data = TokenDataset([("cats in paris", [0, 1, 2]), ("fox", [3])], tokenizer)
    batch = data.get_batch(torch.tensor([1, 0]))
    assert batch["labels"][0, :4].tolist() == [-100, 3, -100, -100]
    assert batch["labels"][1, :7].tolist() == [-100, 0, -100, 1, 2, -100, -100]


def test_hidden_tokens_follow_the_published_shares(tokenizer):
    collator = MlmCollator(tokenizer, seed=3)
    ids = torch.full((200, 200), tokenizer.token_to_id("fox"))
    sequences = torch.zeros_like(ids)
    sequences[:, 0] = -1
    out = collator(ids, sequences)
    chosen = out["labels"] != -100
    assert not chosen[:, 0].any()
    assert chosen[:, 1:].float().mean().item() == pytest.approx(0.15, abs=0.01)
    inside = out["input_ids"][chosen]
    assert (inside == 4).float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert torch.equal(out["input_ids"][~chosen], ids[~chosen])
    assert torch.equal(collator(ids, sequences)["input_ids"], out["input_ids"])
    assert not torch.equal(collator(ids, sequences, draw=1)["input_ids"], out["input_ids"])
    with pytest.raises(ValueError, match="between 0 and 1"):
        MlmCollator(tokenizer, p=1.5)


def test_a_limit_gives_positions_of_a_fixed_number(tokenizer):
    collator = MlmCollator(tokenizer, p=0.5, max_predictions=3)
    ids = torch.randint(5, 40, (8, 20))
    out = collator(ids, torch.zeros_like(ids))
    assert out["positions"].shape == out["labels"].shape == (8, 3)
    counted = out["labels"] != -100
    assert counted.any()
    assert torch.equal(ids.gather(1, out["positions"])[counted], out["labels"][counted])
    few = collator(ids, torch.where(torch.arange(20) < 1, 0, -1).expand(8, 20))
    assert ((few["labels"] != -100).sum(1) <= 1).all()


def test_each_epoch_hides_other_tokens(tokenizer):
    data = MlmDataset(["the quick brown fox jumps over the lazy dog"] * 4, tokenizer)
    indices = torch.arange(4)
    first = data.get_batch(indices)["input_ids"]
    assert torch.equal(data.get_batch(indices)["input_ids"], first)
    data.set_epoch(1)
    assert not torch.equal(data.get_batch(indices)["input_ids"], first)
