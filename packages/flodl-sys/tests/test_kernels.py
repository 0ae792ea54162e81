"""The kernels against a NumPy reference that rounds each step to float32 in the declared order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flodl_sys import kernels

pytestmark = pytest.mark.usefixtures("native")

LENGTHS = [0, 1, 2, 7, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 4097, 200_003]
SPECIAL = np.array(
    [0.0, -0.0, 1e-45, -1e-45, 1.1754942e-38, 3.4028235e38, -3.4028235e38, np.inf, -np.inf, np.nan],
    dtype=np.float32,
)


def isas():
    found = kernels.status()
    return kernels.supported_isas() if found.is_native else ["baseline"]


@pytest.fixture(params=isas())
def isa(request):
    return request.param


def floats(length, seed):
    """Random float32 values with every special one strewn in."""
    rng = np.random.default_rng(seed)
    values = rng.normal(scale=3.0, size=length).astype(np.float32)
    at = rng.random(length) < 0.05
    values[at] = rng.choice(SPECIAL, size=at.sum())
    return values


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(values):
    """Nearest bfloat16 by exact arithmetic on the two candidates, ties to the even one."""
    bits = values.view(np.uint32)
    low = bits & 0xFFFF
    up = (low > 0x8000) | ((low == 0x8000) & ((bits >> 16) & 1 == 1))
    result = ((bits >> 16) + up).astype(np.uint16)
    return np.where(np.isnan(values), ((bits >> 16) | 0x40).astype(np.uint16), result)


def average(buffers, weights):
    with np.errstate(all="ignore"):
        total = np.float32(weights[0]) * buffers[0]
        for weight, buffer in zip(weights[1:], buffers[1:], strict=True):
            total = total + np.float32(weight) * buffer
    return total


def assert_same_bits(got, wanted):
    """Equal bits, and a NaN where a NaN is wanted."""
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(np.uint32)[~nan], wanted.view(np.uint32)[~nan])


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9])
def test_average_has_the_bits_of_the_reference(isa, count, length):
    buffers = [floats(length, seed) for seed in range(count)]
    weights = np.random.default_rng(9).random(count).tolist()
    out = np.full(length, 7, np.float32)
    kernels.weighted_average(buffers, weights, out, isa=isa)
    assert_same_bits(out, average(buffers, weights))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_average_of_bf16_has_the_bits_of_the_reference(isa, count, length):
    buffers = [rounded(floats(length, seed)) for seed in range(count)]
    weights = np.random.default_rng(9).random(count).tolist()
    out = np.full(length, 7, np.float32)
    kernels.weighted_average_bf16(buffers, weights, out, isa=isa)
    assert_same_bits(out, average([widened(b) for b in buffers], weights))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.999])
def test_blend_has_the_bits_of_the_reference(isa, alpha, length):
    p, c = floats(length, 1), floats(length, 2)
    wanted = average([p, c], [1 - alpha, alpha])
    kernels.easgd_blend(p, c, alpha, isa=isa)
    assert_same_bits(p, wanted)


def test_blend_by_one_copies_even_over_nan_and_by_zero_changes_nothing(isa):
    p, c = floats(1000, 1), floats(1000, 2)
    before = p.copy()
    kernels.easgd_blend(p, c, 0, isa=isa)
    np.testing.assert_array_equal(p.view(np.uint32), before.view(np.uint32))
    kernels.easgd_blend(p, c, 1, isa=isa)
    np.testing.assert_array_equal(p.view(np.uint32), c.view(np.uint32))


@pytest.mark.parametrize("length", LENGTHS)
def test_packing_rounds_to_nearest_even_bit_for_bit(isa, length):
    values = np.random.default_rng(3).integers(0, 2**32, length, dtype=np.uint32).view(np.float32)
    out = np.full(length, 7, np.uint16)
    kernels.pack_bf16(values, out, isa=isa)
    np.testing.assert_array_equal(out, rounded(values))


@pytest.mark.parametrize(
    ("value", "packed"),
    [
        (0x3F80_8000, 0x3F80),  # a tie falls to the even neighbor below
        (0x3F81_8000, 0x3F82),  # and rises to the one above
        (0x3F80_8001, 0x3F81),
        (0x7F7F_8000, 0x7F80),  # past the largest: infinity
        (0xFF7F_FFFF, 0xFF80),
        (0x0000_0001, 0x0000),
        (0x0000_8001, 0x0001),  # a denormal stays one
        (0x7F80_0001, 0x7FC0),  # a signaling NaN whose payload would vanish
        (0xFF80_0001, 0xFFC0),
        (0x7FFF_FFFF, 0x7FFF),  # a NaN that rounding up would turn into -0
        (0x7F80_0000, 0x7F80),
    ],
)
def test_packing_of_the_hard_values(isa, value, packed):
    values = np.full(37, value, np.uint32).view(np.float32)
    out = np.zeros(37, np.uint16)
    kernels.pack_bf16(values, out, isa=isa)
    assert set(out.tolist()) == {packed}


def test_unpacking_is_exact_for_every_bf16(isa):
    bits = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    out = np.zeros(2**16, np.float32)
    kernels.unpack_bf16(bits, out, isa=isa)
    np.testing.assert_array_equal(out.view(np.uint32), bits.astype(np.uint32) << 16)


def test_packing_undoes_unpacking_for_every_bf16_but_quiets_nans(isa):
    bits = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    wide, back = np.zeros(2**16, np.float32), np.zeros(2**16, np.uint16)
    kernels.unpack_bf16(bits, wide, isa=isa)
    kernels.pack_bf16(wide, back, isa=isa)
    nan = (bits & 0x7FFF) > 0x7F80
    np.testing.assert_array_equal(back, np.where(nan, bits | 0x40, bits))


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4, 8, 36, 63])
def test_addresses_of_any_alignment_give_the_same_bits(isa, offset):
    length = 5000
    x, y = floats(length, 1), floats(length, 2)
    memory = [np.zeros(4 * length + 64, np.uint8) for _ in range(3)]
    shifted = [block[offset : offset + 4 * length].view(np.float32) for block in memory]
    shifted[0][:], shifted[1][:] = x, y
    kernels.weighted_average(shifted[:2], [0.25, 0.75], shifted[2], isa=isa)
    assert_same_bits(shifted[2].copy(), average([x, y], [0.25, 0.75]))


def test_results_larger_than_the_caches_are_the_same_bits(isa):
    length = 3_000_017  # written around the caches
    x, y = floats(length, 1), floats(length, 2)
    memory = np.zeros(length + 3, np.float32)
    out = memory[1:-2]
    kernels.weighted_average([x, y], [0.3, 0.7], out, isa=isa)
    assert_same_bits(out, average([x, y], [0.3, 0.7]))
    assert memory[0] == memory[-2] == memory[-1] == 0
    packed = np.zeros(length, np.uint16)
    kernels.pack_bf16(x, packed, isa=isa)
    np.testing.assert_array_equal(packed, rounded(x))
    kernels.unpack_bf16(packed, out, isa=isa)
    np.testing.assert_array_equal(out.view(np.uint32), packed.astype(np.uint32) << 16)


def test_no_multiply_is_fused_with_an_add(isa):
    # (1+e)^2 - (1+2e) is e^2 with one rounding and 0 with two
    e = np.float32(2.0**-12)
    x = [np.full(100, 1 + 2 * e, np.float32), np.full(100, 1 + e, np.float32)]
    out = np.full(100, 7, np.float32)
    kernels.weighted_average(x, [-1.0, float(1 + e)], out, isa=isa)
    assert not out.any()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_values_and_weights_give_the_bits_of_the_reference(data):
    count = data.draw(st.integers(1, 6))
    length = data.draw(st.integers(0, 70))
    finite = st.floats(width=32, allow_nan=True, allow_infinity=True)
    buffers = [data.draw(arrays(np.float32, length, elements=finite)) for _ in range(count)]
    weights = data.draw(st.lists(st.floats(-2, 2, width=32), min_size=count, max_size=count))
    out = np.zeros(length, np.float32)
    kernels.weighted_average(buffers, weights, out)
    assert_same_bits(out, average(buffers, weights))
