"""Heads under torch's compiler: one graph each, which gives the same numbers."""

import pytest
import torch

from flodl_hf import (
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("family", "head", "loader"),
    [
        ("bert", "seqcls", AutoModelForSequenceClassification),
        ("roberta", "mlm", AutoModelForMaskedLM),
        ("distilbert", "qa", AutoModelForQuestionAnswering),
        ("albert", "seqcls", AutoModelForSequenceClassification),
        ("deberta-v2", "mlm", AutoModelForMaskedLM),
    ],
)
def test_a_head_compiles_without_a_break(saved, family, head, loader):
    folder, _ = saved(family, head)
    ours = loader.from_pretrained(folder, tokenizer=None)
    compiled = torch.compile(ours, backend="eager", fullgraph=True)
    for length in (12, 40):
        ids = torch.randint(5, 99, (2, length), generator=torch.Generator().manual_seed(length))
        mask = torch.ones_like(ids)
        mask[1, 7:] = 0
        with torch.no_grad():
            assert torch.equal(compiled(ids, mask), ours(ids, mask))
