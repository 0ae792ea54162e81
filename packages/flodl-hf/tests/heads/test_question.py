import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_hf import AutoModelForQuestionAnswering, HeadError, SequenceTooLongError
from flodl_hf.heads.question import Rules, _best_span, _chosen

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
    (total, answer), _ = _best_span(
        logits,
        allowed,
        offsets,
        ("q", "abcdefghij"),
        Rules(max_answer_tokens=reach),
        real=torch.ones(length, dtype=torch.bool),
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
    real = torch.ones(3, dtype=torch.bool)
    rules = Rules(allow_no_answer=True)
    span, none = _best_span(logits, allowed, offsets, ("q", "ab"), rules, real=real)
    assert (span[1].text, span[0]) == ("b", 2.0)
    assert (none[1].text, none[1].start, none[1].end, none[0]) == ("", 0, 0, 18.0)
    assert _chosen(span, none, rules) == none[1]
    assert _chosen(span, none, Rules()) == span[1]
    assert _chosen(none, span, rules) == none[1]  # the first is larger here


def test_a_window_without_the_answer_does_not_hide_that_of_another(talking):
    folder, _ = talking("bert", "qa")
    head = AutoModelForQuestionAnswering.from_pretrained(folder)
    context = "the quick brown fox jumps over the lazy dog . " * 9 + "paris"
    paris = head.tokenizer.token_to_id("paris")
    long = {"stride": 8, "allow_no_answer": True}

    def point(_graph, args, kwargs, logits):
        ids = kwargs.get("input_ids", args[0] if args else None)
        found = (ids == paris).float()
        logits = torch.zeros_like(logits)
        logits[:, 0] = 5 * (1 - found.amax(1, keepdim=True))  # sure that there is none elsewhere
        return logits + found[..., None]

    head.graph.register_forward_hook(point, with_kwargs=True)
    answer = head.answer("where ?", context, **long)
    assert (answer.text, answer.start_char) == ("paris", len(context) - 5)
    assert head.answer("where ?", context.removesuffix("paris"), **long).text == ""


def falling(logits):
    """Return logits near each other that fall from token to token: no answer wins, by little."""
    at = torch.arange(logits.shape[1])[None, :, None]
    return logits * 1e-3 - at * 0.01


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta-v2"])
@pytest.mark.parametrize("on_left", [False, True])
def test_padding_changes_no_answer_and_no_score(talking, family, on_left):
    folder, _ = talking(family, "qa")
    head = AutoModelForQuestionAnswering.from_pretrained(folder)
    head.graph.register_forward_hook(lambda graph, _, logits: falling(logits))
    given = head.tokenizer.rows([("who ?", "a fox"), PAIR])
    batch = head.tokenizer.padded(given, on_left=on_left)
    together = head.extract(batch, allow_no_answer=True)
    for row, answer in zip(given, together, strict=True):
        [alone] = head.extract(head.tokenizer.padded([row]), allow_no_answer=True)
        assert answer.text == alone.text == ""
        assert answer.start == answer.end == (len(given[1].ids) - len(row.ids)) * on_left
        assert answer.score == pytest.approx(alone.score, abs=1e-6)


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
    assert answer == max((span for span, _ in scored), key=lambda item: item[0])[1]


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
