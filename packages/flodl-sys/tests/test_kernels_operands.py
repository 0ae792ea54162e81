"""What the kernels take as memory, and what they refuse."""

import array

import numpy as np
import pytest

from flodl_sys import kernels
from flodl_sys.errors import KernelArgumentError
from flodl_sys.kernels import Span

pytestmark = pytest.mark.usefixtures("native")


def ones(length=8):
    return np.ones(length, np.float32)


def test_arrays_memoryviews_and_spans_are_memory():
    out = array.array("f", bytes(32))
    source = ones()
    buffers = [memoryview(bytes(source)).cast("f"), Span(source.ctypes.data, 8), source]
    kernels.weighted_average(buffers, [1, 2, 3], out)
    assert list(out) == [6.0] * 8
    target = np.zeros(8, np.float32)
    kernels.easgd_blend(Span(target.ctypes.data, 8), out, 0.5)
    assert target.tolist() == [3.0] * 8


def test_signed_integers_carry_bf16_bits_too():
    out = ones()
    kernels.unpack_bf16(np.full(8, -0x4080, np.int16), out)
    assert out.tolist() == [-1.0] * 8


def test_any_shape_is_taken_in_its_memory_order():
    out = np.zeros((2, 4), np.float32)
    kernels.weighted_average([np.arange(8, dtype=np.float32).reshape(4, 2)], [1], out)
    assert out.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_the_result_may_replace_one_of_the_buffers():
    x, y = ones(), ones() * 3
    kernels.weighted_average([x, y], [0.5, 0.5], y)
    assert y.tolist() == [2.0] * 8


def test_a_target_may_be_blended_with_itself():
    p = ones()
    kernels.easgd_blend(p, p, 0.25)
    assert p.tolist() == [1.0] * 8


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan"), float("inf")])
def test_alpha_outside_zero_to_one_is_refused(alpha):
    with pytest.raises(KernelArgumentError, match=r"alpha is .*, not a number from 0 to 1"):
        kernels.easgd_blend(ones(), ones(), alpha)


MEMORY = np.zeros(64, np.float32)
FROZEN = np.zeros(8, np.float32)
FROZEN.flags.writeable = False


@pytest.mark.parametrize(
    ("buffers", "weights", "out", "message"),
    [
        ([], [], ones(), r"buffers is empty"),
        ([ones(), ones()], [1], ones(), r"weights has 1 values for 2 buffers"),
        ([ones(), ones(9)], [1, 1], ones(), r"buffers\[1\] has 9 elements, out has 8"),
        ([ones()], [1], FROZEN, r"out gives no writable contiguous memory"),
        ([ones(16)[::2]], [1], ones(), r"buffers\[0\] gives no contiguous memory"),
        ([np.zeros(8)], [1], ones(), r"buffers\[0\] has elements of format 'd' \(8 bytes\)"),
        ([np.zeros(8, ">f4")], [1], ones(), r"buffers\[0\] has elements of format '>f'"),
        ([[1.0] * 8], [1], ones(), r"buffers\[0\] gives no contiguous memory.*'list'"),
        ([b"12345678"], [1], ones(), r"buffers\[0\] has elements of format 'B'"),
        ([MEMORY[:8]], [1], MEMORY[4:12], r"share a part of their memory"),
        ([(1, 2, 3)], [1], ones(), r"a tuple of 3 values, not \(address, length\)"),
        ([(1, -2)], [1], ones(), r"not \(address, length\) as two integers >= 0"),
        ([("a", 2)], [1], ones(), r"not \(address, length\) as two integers >= 0"),
        ([Span(0, 8)], [1], ones(), r"no memory can be there"),
        ([Span(8, 2**62)], [1], ones(), r"no memory can be there"),
    ],
)
def test_operands_that_do_not_fit_are_refused_before_anything_is_written(
    buffers, weights, out, message
):
    before = np.array(out)
    with pytest.raises(KernelArgumentError, match=message):
        kernels.weighted_average(buffers, weights, out)
    np.testing.assert_array_equal(out, before)


def test_widening_into_its_own_memory_is_refused():
    memory = np.zeros(64, np.uint8)
    bits, wide = memory[:16].view(np.uint16), memory[:32].view(np.float32)
    for call in (
        lambda: kernels.unpack_bf16(bits, wide),
        lambda: kernels.pack_bf16(wide, bits),
        lambda: kernels.weighted_average_bf16([bits], [1], wide),
    ):
        with pytest.raises(KernelArgumentError, match="share memory: the result needs a block"):
            call()


def test_blend_with_an_overlapping_center_or_another_length_is_refused():
    with pytest.raises(KernelArgumentError, match="share a part of their memory"):
        kernels.easgd_blend(MEMORY[:8], MEMORY[1:9], 0.5)
    with pytest.raises(KernelArgumentError, match="c has 7 elements, p has 8"):
        kernels.easgd_blend(ones(8), ones(7), 0.5)


def test_packing_into_another_length_is_refused():
    with pytest.raises(KernelArgumentError, match="source has 8 elements, out has 7"):
        kernels.pack_bf16(ones(8), np.zeros(7, np.uint16))


def test_an_unknown_instruction_set_names_the_known_ones():
    with pytest.raises(KernelArgumentError, match=r"isa is 'neon9'; this processor runs: baseline"):
        kernels.easgd_blend(ones(), ones(), 0.5, isa="neon9")


def test_no_threads_are_refused():
    with pytest.raises(KernelArgumentError, match="threads is 0"):
        kernels.easgd_blend(ones(), ones(), 0.5, threads=0)


def test_a_locked_buffer_cannot_be_resized_and_is_released_after_the_call():
    memory = bytearray(32)
    out = memoryview(memory).cast("f")
    kernels.weighted_average([ones()], [2], out)
    out.release()
    memory.extend(b"free again")
    with pytest.raises(KernelArgumentError):
        kernels.weighted_average([ones(), ones(9)], [1, 1], memoryview(memory)[:32].cast("f"))
    memory.extend(b"and after an error")
