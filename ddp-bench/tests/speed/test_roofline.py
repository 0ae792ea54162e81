import pytest

from ddp_bench.speed.limits import Limits
from ddp_bench.speed.models import MODELS, find
from ddp_bench.speed.roofline import Work, work_of


def test_products_of_the_mlp_are_counted_exactly():
    work = work_of(find("mlp"), "full")
    layers = [(1024, 2048), (2048, 2048), (2048, 2048), (2048, 2048), (2048, 1024)]
    products = [2 * 256 * a * b for a, b in layers]
    # forward, gradient of the weights, gradient of the inputs; the data needs none
    assert work.product_flops == 3 * sum(products) - products[0]
    assert work.cudnn_flops == 0


def test_bytes_hold_parameters_optimizer_state_and_what_backward_needs():
    work = work_of(find("mlp"), "full")
    parameters = 40 * find("mlp").params
    # inputs, and of each block: before the activation, after it, after the norm
    kept = 4 * 256 * (1024 + 3 * 4 * 2048)
    assert work.n_bytes >= parameters + 2 * kept
    assert work.n_bytes == pytest.approx(parameters + 2 * kept, rel=0.02)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_model_has_work_of_the_right_kind(model):
    work = work_of(model, "small")
    assert work.product_flops + work.cudnn_flops > 0
    is_cudnn = model.name in ("convnet", "conv_autoenc", "lstm_seq")
    assert (work.cudnn_flops > work.product_flops) is is_cudnn


def test_floor_is_the_longer_of_arithmetic_and_traffic():
    limits = Limits(fp32=1e12, tf32=2e12, bf16=4e12, copy=1e12, kernel_us=None)
    work = Work(product_flops=10**9, cudnn_flops=2 * 10**9, n_bytes=10**9)
    assert work.compute_ms(limits, "fp32") == pytest.approx(2.0)
    assert work.compute_ms(limits, "tf32") == pytest.approx(1.5)
    assert work.compute_ms(limits, "bf16") == pytest.approx(0.75)
    assert work.floor_ms(limits, "fp32") == pytest.approx(2.0)
    assert work.floor_ms(limits, "bf16") == pytest.approx(1.0)
