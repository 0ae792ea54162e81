import torch

from flodl.distributed.averaging.wire import Residual, packed, unpacked


def test_feedback_makes_up_for_what_rounding_lost():
    generator = torch.Generator().manual_seed(0)
    truth, with_feedback, without = (torch.zeros(500) for _ in range(3))
    fed, blind = Residual(500, is_on=True), Residual(500, is_on=False)
    sent = torch.empty(500, dtype=torch.bfloat16)
    for _ in range(200):
        delta = 1e-3 * (1 + torch.randn(500, generator=generator))
        truth += delta
        for residual, total in ((fed, with_feedback), (blind, without)):
            residual.packed(delta.clone(), sent)
            total.add_(sent.float())
    assert blind.values is None
    # what is still owed is one rounding of one delta, however many windows there were
    assert (with_feedback + fed.values - truth).abs().max() < 2e-6
    assert (with_feedback - truth).abs().mean() < 0.2 * (without - truth).abs().mean()


def test_float32_passes_unchanged_and_owes_nothing():
    values = torch.randn(9, generator=torch.Generator().manual_seed(1))
    residual, sent = Residual(9, is_on=True), torch.empty(9)
    residual.packed(values.clone(), sent)
    assert torch.equal(sent, values)
    assert not residual.values.any()
    back = torch.empty(9)
    unpacked(sent, back)
    assert torch.equal(back, values)


def test_differences_keep_what_weights_in_bf16_would_lose():
    generator = torch.Generator().manual_seed(2)
    base = torch.randn(10_000, generator=generator)
    moved = base + 1e-4 * torch.randn(10_000, generator=generator)
    narrow, wide = torch.empty(10_000, dtype=torch.bfloat16), torch.empty(10_000)
    packed(moved - base, narrow)
    unpacked(narrow, wide)
    by_difference = (base + wide - moved).square().mean().sqrt()
    packed(moved, narrow)
    unpacked(narrow, wide)
    by_weight = (wide - moved).square().mean().sqrt()
    assert by_difference < 5e-7
    assert by_weight > 1e-3
