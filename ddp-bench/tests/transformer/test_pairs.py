import pytest
import torch

from ddp_bench.transformer.pairs import STEMS, make_pair

SMALL = {
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 37,
    "vocab_size": 60,
    "max_position_embeddings": 80,
}
DISTIL = {"dim": 32, "n_heads": 2, "hidden_dim": 37, "vocab_size": 60}


@pytest.fixture(params=STEMS)
def pair(request, tmp_path):
    sizes = DISTIL if request.param == "distilbert" else SMALL
    return make_pair(request.param, 1, tmp_path, torch.device("cpu"), torch.float32, **sizes)


def test_both_models_compute_the_same(pair):
    batch = pair.batch(3, 24, torch.device("cpu"))
    pair.reference.eval()
    pair.ours.eval()
    with torch.no_grad():
        theirs, ours = pair.logits(batch)
    assert ours.shape == (3, 3)
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_batches_are_padded_and_the_same_every_time(pair):
    batch = pair.batch(4, 16, torch.device("cpu"))
    again = pair.batch(4, 16, torch.device("cpu"))
    assert all(torch.equal(batch[name], again[name]) for name in batch)
    assert batch["attention_mask"].sum(1)[0] == 16
    assert batch["attention_mask"].min() == 0
    assert torch.equal(batch["input_ids"] * (1 - batch["attention_mask"]), torch.zeros(4, 16))
