"""The parity gate bites: each small mistake, made on purpose, exceeds it at least three times."""

import pytest
import torch
from torch import nn

from flodl_hf import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification
from flodl_hf.encoder import disentangled, distances, embeddings, masks
from flodl_hf.encoder.disentangled import DisentangledLayer
from flodl_hf.encoder.layer import PostNorm
from flodl_hf.verify.oracle import outputs_of


def inputs_for(config):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, config.vocab_size, (3, 40), generator=generator)
    mask = torch.ones(3, 40, dtype=torch.long)
    mask[1, 33:] = mask[2, 3:] = 0
    ids[mask == 0] = config.pad_token_id
    return {"input_ids": ids, "attention_mask": mask}


def error_over_gate(folder, model, head, change, monkeypatch):
    """Return by how much a changed model of ours misses the gate."""
    inputs = inputs_for(model.config)
    loaders = {
        "base": AutoModel,
        "mlm": AutoModelForMaskedLM,
        "seqcls": AutoModelForSequenceClassification,
    }
    options = {"with_pooler": None} if head == "base" else {}
    ours = loaders[head].from_pretrained(folder, **options)
    change(ours, monkeypatch)
    with torch.no_grad():
        names = ours.input_names if head == "base" else inputs
        out = ours(**{name: inputs.get(name) for name in names})
    reference = outputs_of(model, head, inputs)
    expected = reference.get("logits", reference.get("pooler", reference.get("hidden")))
    gate = 1e-5 * max(1.0, expected.abs().max().item())
    return (out - expected).abs().max().item() / gate


def layers(model):
    return [module for module in model.modules() if isinstance(module, PostNorm)]


def ignore_mask(_model, monkeypatch):
    for module in (masks, embeddings, disentangled):
        monkeypatch.setattr(module, "prepare_mask", lambda mask: None)


def mirror_mask(_model, monkeypatch):
    for module in (masks, embeddings, disentangled):
        monkeypatch.setattr(module, "prepare_mask", lambda m: m.bool().flip(1)[:, None, None, :])


def drop_query_bias(model, _):
    with torch.no_grad():
        layers(model)[0]._query(layers(model)[0]).bias.zero_()


def take_the_other_gelu(model, _):
    for layer in layers(model):
        layer._act = nn.GELU(approximate="tanh")


def take_another_eps(model, _):
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-5


def shift_positions(by):
    def change(_model, monkeypatch):
        true = embeddings.offset_positions
        monkeypatch.setattr(embeddings, "offset_positions", lambda ids, pad: true(ids, pad) + by)

    return change


def take_the_other_type(model, _):
    table = model.get_submodule("embeddings.token_type_embeddings")
    with torch.no_grad():
        table.weight.copy_(table.weight.flip(0))


def leave_out_the_pooler_activation(model, _):
    model.set_submodule("pooler_activation", nn.Identity())


def turn_distances_around(_model, monkeypatch):
    true = distances.Distances.forward
    monkeypatch.setattr(distances.Distances, "forward", lambda self, x: true(self, x).t())


def clamp_far_distances(model, monkeypatch):
    true = distances.bucket
    monkeypatch.setattr(distances, "bucket", lambda r, b, m: true(r, b, m).clamp(1 - b, b - 1))
    for module in model.modules():
        if isinstance(module, distances.Distances):
            module._prepare(64)


def leave_out_the_number_of_terms(model, _):
    for layer in layers(model):
        layer._scale = layer._scale * 3**0.5


def forget_to_turn_p2c(_model, monkeypatch):
    def scores(self, q, k, rel, distance):
        own = dict(self.get_submodule("attention.self").named_children())
        keys = self._of_positions(own["key_proj"], rel)
        queries = self._of_positions(own["query_proj"], rel)
        at = distance.expand(*q.shape[:2], *distance.shape)
        to = ((q * self._scale) @ keys.transpose(-1, -2)).gather(-1, at)
        return to + ((k * self._scale) @ queries.transpose(-1, -2)).gather(-1, at)

    monkeypatch.setattr(DisentangledLayer, "_position_scores", scores)


class Passing(nn.Module):
    def forward(self, x, embeddings=None, attention_mask=None):
        return x


def skip_the_convolution(model, _):
    model.set_submodule("encoder.conv", Passing())


def lose_the_decoder_bias(model, _):
    with torch.no_grad():
        model.get_submodule("cls.predictions").bias.zero_()


MISTAKES = [
    ("bert", "base", ignore_mask, {}),
    ("bert", "base", mirror_mask, {}),
    ("deberta-v2", "base", ignore_mask, {}),
    ("deberta-v2", "base", mirror_mask, {}),
    ("bert", "base", drop_query_bias, {}),
    ("distilbert", "base", drop_query_bias, {}),
    ("bert", "base", take_the_other_gelu, {}),
    ("deberta-v2", "base", take_the_other_gelu, {}),
    ("albert", "mlm", take_another_eps, {}),
    ("deberta-v2", "base", take_another_eps, {}),
    ("roberta", "base", shift_positions(1), {}),
    ("roberta", "base", shift_positions(-1), {}),
    ("bert", "base", take_the_other_type, {}),
    ("bert", "base", leave_out_the_pooler_activation, {}),
    ("albert", "base", leave_out_the_pooler_activation, {}),
    ("deberta-v2", "base", turn_distances_around, {}),
    ("deberta-v2", "base", clamp_far_distances, {}),
    ("deberta-v2", "base", leave_out_the_number_of_terms, {}),
    ("deberta-v2", "base", forget_to_turn_p2c, {}),
    ("deberta-v2", "base", skip_the_convolution, {"conv_kernel_size": 3}),
    ("bert", "mlm", lose_the_decoder_bias, {}),
    ("deberta-v2", "mlm", lose_the_decoder_bias, {}),
]


@pytest.mark.parametrize(
    ("family", "head", "mistake", "changes"),
    MISTAKES,
    ids=[f"{family}-{mistake.__name__}-{i}" for i, (family, _, mistake, _) in enumerate(MISTAKES)],
)
def test_a_mistake_exceeds_the_gate(saved, monkeypatch, family, head, mistake, changes):
    folder, model = saved(family, head, **changes)
    assert error_over_gate(folder, model, head, lambda *_: None, monkeypatch) <= 1
    assert error_over_gate(folder, model, head, mistake, monkeypatch) >= 3
