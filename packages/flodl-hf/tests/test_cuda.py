"""Every family and every head on a GPU: against the reference there, and captured."""

import pytest
import torch

from flodl.data import Batch
from flodl.engine.equality import verify_step
from flodl.engine.step import TrainStep
from flodl.optim import SGD
from flodl_hf import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from flodl_hf.verify.oracle import outputs_of

pytestmark = pytest.mark.cuda

FAMILIES = ("bert", "roberta", "distilbert", "xlm-roberta", "albert", "deberta-v2")
HEADS = {
    "mlm": AutoModelForMaskedLM,
    "seqcls": AutoModelForSequenceClassification,
    "tokcls": AutoModelForTokenClassification,
    "qa": AutoModelForQuestionAnswering,
}
CELLS = [(family, head) for family in FAMILIES for head in ("base", *HEADS)]
GATES = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
ROWS, LENGTH = 4, 24


@pytest.fixture(autouse=True)
def exact_products():
    """Compute float32 products in float32."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "ieee"
    yield
    matmul.fp32_precision = before


def batch_for(config, head, *, labeled=True):
    """Return a padded batch on the GPU."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, config.vocab_size, (ROWS, LENGTH), generator=generator)
    mask = torch.ones(ROWS, LENGTH, dtype=torch.long)
    mask[1, 17:] = mask[3, 3:] = 0
    ids[mask == 0] = config.pad_token_id
    given = {"input_ids": ids, "attention_mask": mask}
    if not labeled:
        return {name: value.cuda() for name, value in given.items()}
    if head == "qa":
        given |= {"starts": torch.tensor([1, 4, 0, 2]), "ends": torch.tensor([5, 9, 40, 2])}
    elif head == "seqcls":
        given["labels"] = torch.tensor([2, 0, 1, 1])
    else:
        count = config.vocab_size if head == "mlm" else 3
        labels = torch.randint(0, count, ids.shape, generator=generator)
        given["labels"] = labels.masked_fill(mask == 0, -100)
    static = {"has_padding": True}
    return Batch(list(given.values()), list(given), static=static).to(torch.device("cuda"))


def loss_of(head, batch):
    names = batch.names
    labels = batch["labels"] if "labels" in names else (batch["starts"], batch["ends"])
    return head.compute_loss(batch, labels)


@pytest.mark.parametrize("dtype", GATES, ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("family", "head"), CELLS)
def test_every_cell_equals_the_reference_on_the_device(saved, family, head, dtype):
    folder, model = saved(family, head)
    inputs = batch_for(model.config, head, labeled=False)
    exact = outputs_of(model.to("cuda"), head, inputs)
    expected = outputs_of(model.to(dtype), head, inputs)
    if head == "base":
        graph = AutoModel.from_pretrained(folder, with_pooler=None, device="cuda", dtype=dtype)
        with torch.no_grad():
            graph(**{name: inputs.get(name) for name in graph.input_names})
        found = {tag: graph.tagged(tag) for tag in expected}
    else:
        ours = HEADS[head].from_pretrained(folder, device="cuda", dtype=dtype, tokenizer=None)
        with torch.no_grad():
            found = {"logits": ours(**inputs)}
    for name, reference in expected.items():
        assert found[name].dtype == dtype
        # Where half precision moves the reference further than the gate, ours may be as far from
        # the exact numbers, on the other side.
        rounding = (reference - exact[name]).abs().max().item()
        allowed = max(GATES[dtype] * max(1.0, reference.abs().max().item()), 2 * rounding)
        assert (found[name] - reference).abs().max().item() <= allowed, name


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head", HEADS)
def test_a_captured_step_equals_the_eager_one(saved, family, head):
    folder, model = saved(family, head)

    def make_step(capture):
        ours = HEADS[head].from_pretrained(folder, device="cuda", tokenizer=None).train()
        return TrainStep(loss_of, ours, SGD(ours.parameters(), lr=1e-4), capture=capture)

    report = verify_step(make_step, [batch_for(model.config, head)], 12)
    assert report.mode == "captured"
    assert report.captured_losses[-1] != report.captured_losses[0]
    # Sums over atomic additions differ in the last bits from run to run.
    report.assert_close(1e-4)


def test_a_recording_holds_after_longer_texts(saved):
    """A table that grows must not free the one that recordings read."""
    folder, model = saved("deberta-v2", "seqcls")
    ours = AutoModelForSequenceClassification.from_pretrained(folder, device="cuda", tokenizer=None)
    inputs = batch_for(model.config, "seqcls", labeled=False)
    longer = {name: value.repeat(1, 9) for name, value in inputs.items()}
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        before = ours(**inputs).clone()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            recorded = ours(**inputs)
        ours(**longer)
        torch.cuda.empty_cache()
        junk = [torch.full((2**10,), 2**40, device="cuda") for _ in range(64)]
        graph.replay()
        torch.cuda.synchronize()
    assert len(junk) == 64
    torch.testing.assert_close(recorded, before)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_reach_the_whole_backbone(saved, family):
    folder, model = saved(family, "seqcls")
    ours = AutoModelForSequenceClassification.from_pretrained(
        folder, device="cuda", tokenizer=None
    ).train()
    loss_of(ours, batch_for(model.config, "seqcls")).backward()
    still = {
        name
        for name, parameter in ours.named_parameters()
        if parameter.grad is None or not parameter.grad.any()
    }
    assert all("token_type" in name or "key" in name for name in still), still


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("bert", {}),
        ("deberta-v2", {}),
        ("deberta-v2", {"relative_attention": False, "position_biased_input": True}),
    ],
)
def test_gradients_of_padded_positions_equal_the_reference(saved, family, changes):
    """Fused kernels keep only the logarithm of a row's sum for the backward pass."""
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    folder, model = saved(family, "base", **still, **changes)
    inputs = batch_for(model.config, "base", labeled=False)
    ours = AutoModel.from_pretrained(folder, device="cuda")
    expected = model.to("cuda")(**inputs).last_hidden_state
    found = ours(**{name: inputs.get(name) for name in ours.input_names})
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(4)).cuda()
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    reference = dict(model.named_parameters())
    for name, parameter in ours.named_parameters():
        wanted = reference[name].grad
        if wanted is None:  # a norm that checkpoints bring and nothing uses
            assert parameter.grad is None, name
            continue
        allowed = 1e-4 * max(1.0, wanted.abs().max().item())
        assert (parameter.grad - wanted).abs().max().item() <= allowed, name


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_forward_never_waits_for_the_device(saved):
    for family in FAMILIES:
        folder, model = saved(family, "seqcls")
        ours = AutoModelForSequenceClassification.from_pretrained(
            folder, device="cuda", tokenizer=None
        ).train()
        batch = batch_for(model.config, "seqcls")
        loss_of(ours, batch).backward()  # what is made once per device is there now
        torch.cuda.set_sync_debug_mode("error")
        try:
            loss_of(ours, batch).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
