import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_hf import AutoModelForQuestionAnswering, HeadError, SequenceTooLongError
from flodl_hf.heads.question import Rules, _best_span

PAIR = ("Who sat on the mat ?", "The Cat sat on the mat in London . The dog jumps .")


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "deberta-v2"])
def test_the_answer_is_the_best_span_of_the_reference(talking, family):
    folder, model = talking(family, "qa")
    head = AutoModelForQuestionAnswering.from_pretrained(folder)
    answer = head.answer(*PAIR)
    enc = head.tokenizer.encode_pairs([PAIR])
    types = {"token_type_ids": enc.token_type_ids} if family == "bert" else {}
    with torch.no_grad():
        out = model(enc.input_ids, attention_mask=enc.attention_mask, **types)
    allowed = enc.sequence_ids[0] == 1
    start = out.start_logits[0].masked_fill(~allowed, -torch.inf)
    end = out.end_logits[0].masked_fill(~allowed, -torch.inf)
    spans = [
        (float(start[i] + end[j]), -i, -j)
        for i in range(len(start))
        for j in range(i, len(start))
        if allowed[i] and allowed[j]
    ]
    _, first, last = max(spans)
    assert (answer.start, answer.end) == (-first, -last)
    assert answer.score == pytest.approx(
        (start.softmax(0)[-first] * end.softmax(0)[-last]).item(), abs=1e-5
    )
    begin, finish = enc.offsets[0, -first, 0], enc.offsets[0, -last, 1]
    assert answer.text == PAIR[1][begin:finish]
    assert (answer.start_char, answer.end_char) == (begin, finish)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_span_is_always_in_the_context_and_the_best_of_all(data):
    length = data.draw(st.integers(3, 9))
    # Few values: ties are frequent.
    values = st.integers(-2, 2).map(float)
    logits = torch.tensor(
        data.draw(st.lists(st.tuples(values, values), min_size=length, max_size=length))
    )
    first = data.draw(st.integers(1, length - 1))
    end = data.draw(st.integers(first + 1, length))
    reach = data.draw(st.one_of(st.none(), st.integers(1, length)))
    allowed = torch.zeros(length, dtype=torch.bool)
    allowed[first:end] = True
    offsets = torch.arange(length)[:, None] + torch.tensor([0, 1])
    total, answer = _best_span(
        logits, allowed, offsets, ("q", "abcdefghij"), Rules(max_answer_tokens=reach)
    )
    spans = [
        (-(logits[i, 0] + logits[j, 1]).item(), i, j)
        for i in range(first, end)
        for j in range(i, end)
        if reach is None or j - i < reach
    ]
    best = min(spans)
    assert (-total, answer.start, answer.end) == best
    assert answer.text == "abcdefghij"[answer.start : answer.end + 1]
    assert 0 <= answer.score <= 1


def test_no_answer_wins_when_its_score_is_larger():
    logits = torch.tensor([[9.0, 9.0], [0, 0], [1, 1]])
    allowed = torch.tensor([False, True, True])
    offsets = torch.tensor([[0, 0], [0, 1], [1, 2]])
    _, plain = _best_span(logits, allowed, offsets, ("q", "ab"), Rules())
    assert plain.text == "b"
    total, none = _best_span(logits, allowed, offsets, ("q", "ab"), Rules(allow_no_answer=True))
    assert (none.text, none.start, none.end, total) == ("", 0, 0, 18.0)
    logits[0] = -1
    _, some = _best_span(logits, allowed, offsets, ("q", "ab"), Rules(allow_no_answer=True))
    assert some.text == "b"


def test_a_context_without_tokens_is_an_error(talking):
    folder, _ = talking("bert", "qa")
    head = AutoModelForQuestionAnswering.from_pretrained(folder)
    with pytest.raises(HeadError, match="context"):
        head.answer("who ?", "")


def test_long_contexts_need_a_stride(talking):
    folder, _ = talking("bert", "qa")
    head = AutoModelForQuestionAnswering.from_pretrained(folder)
    context = "the quick brown fox jumps over the lazy dog . " * 20
    with pytest.raises(SequenceTooLongError):
        head.answer("who ?", context)
    answer = head.answer("who ?", context, stride=8, max_answer_tokens=5)
    assert context[answer.start_char : answer.end_char] == answer.text
    enc = head.tokenizer.encode_pairs(
        [("who ?", context)], truncation="only_second", max_length=64, stride=8
    )
    assert enc.size > 3
    scored = head._extract(enc, Rules(max_answer_tokens=5))
    assert answer == max(scored, key=lambda item: item[0])[1]


def test_answers_keep_the_order_of_the_pairs(talking):
    folder, _ = talking("bert", "qa")
    head = AutoModelForQuestionAnswering.from_pretrained(folder)
    pairs = [PAIR, ("what ?", "a fox"), ("where ?", "in Paris , the city of lights")]
    together = head.answer_batch(pairs, batch_size=2)
    for pair, answer in zip(pairs, together, strict=True):
        alone = head.answer(*pair)
        assert (alone.text, alone.start, alone.end) == (answer.text, answer.start, answer.end)
        assert alone.score == pytest.approx(answer.score, abs=1e-5)
    with pytest.raises(ValueError, match="max_answer_tokens"):
        head.answer(*PAIR, max_answer_tokens=0)
