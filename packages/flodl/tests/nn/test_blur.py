import math

import pytest
import torch
from torch.nn import functional

from flodl.nn import GaussianBlur, gaussian_blur_2d


def dense(x, sigma, mode):
    """The same blur as one two-dimensional convolution, from the definition."""
    radius = math.ceil(3 * sigma)
    weight = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(-radius, radius + 1)]
    line = torch.tensor(weight, dtype=torch.float64) / sum(weight)
    kernel = (line[:, None] * line[None, :]).expand(x.shape[1], 1, -1, -1)
    padded = functional.pad(x, (radius,) * 4, mode="constant" if mode == "zeros" else "reflect")
    return functional.conv2d(padded, kernel, groups=x.shape[1])


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.2])
def test_the_blur_is_that_of_its_definition(sigma, mode):
    x = torch.randn(2, 3, 9, 12, dtype=torch.float64)
    result = gaussian_blur_2d(x, sigma, padding_mode=mode)
    assert result.shape == x.shape
    torch.testing.assert_close(result, dense(x, sigma, mode), rtol=0, atol=1e-12)
    torch.testing.assert_close(GaussianBlur(sigma, padding_mode=mode)(x), result, rtol=0, atol=0)


def test_a_constant_image_keeps_its_value_when_mirrored():
    x = torch.full((1, 1, 10, 10), 3.0)
    torch.testing.assert_close(gaussian_blur_2d(x, 1.5, padding_mode="reflect"), x)


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
def test_gradients_are_those_of_finite_differences(mode, check):
    x = torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True)
    assert check(lambda x: gaussian_blur_2d(x, 0.7, padding_mode=mode), [x], eps=1e-6, atol=1e-6)


def test_the_gradient_can_be_cut():
    x = torch.randn(1, 1, 4, 4, requires_grad=True)
    assert not gaussian_blur_2d(x, 1.0, detach=True).requires_grad
    assert not GaussianBlur(1.0, detach=True)(x).requires_grad
    assert GaussianBlur(1.0)(x).requires_grad


def test_half_precision_uses_a_kernel_made_in_float32():
    x = torch.rand(1, 1, 12, 12)
    result = gaussian_blur_2d(x.bfloat16(), 1.0)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.float(), gaussian_blur_2d(x, 1.0), rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_sigma_must_be_positive(sigma):
    for call in (
        lambda: gaussian_blur_2d(torch.zeros(1, 1, 4, 4), sigma),
        lambda: GaussianBlur(sigma),
    ):
        with pytest.raises(ValueError, match="sigma"):
            call()


def test_impossible_images_are_refused():
    with pytest.raises(ValueError, match=r"shape \[4, 4\]; it is \[B, C, H, W\]"):
        gaussian_blur_2d(torch.zeros(4, 4), 1.0)
    with pytest.raises(TypeError, match=r"torch\.uint8"):
        gaussian_blur_2d(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), 1.0)
    with pytest.raises(ValueError, match="radius of 3 pixels cannot be mirrored"):
        gaussian_blur_2d(torch.zeros(1, 1, 3, 9), 1.0, padding_mode="reflect")
    with pytest.raises(ValueError, match="padding_mode='wrap'"):
        GaussianBlur(1.0, padding_mode="wrap")
