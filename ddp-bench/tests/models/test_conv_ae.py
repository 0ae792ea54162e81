import torch
from torch import nn

from ddp_bench.models.conv_ae import build, reconstruction_error
from flodl import Batch


def test_output_is_an_image_of_the_input_size_between_0_and_1(facts):
    output = build(torch.device("cpu"), facts)(torch.rand(2, 1, 28, 28))
    assert output.shape == (2, 1, 28, 28)
    assert 0 <= output.min() <= output.max() <= 1


def test_perfect_reconstruction_has_no_error():
    batch = Batch([torch.rand(2, 1, 28, 28)], ["image"])
    assert float(reconstruction_error(nn.Identity(), batch)) == 0
