"""One suite over both backends, then what only one of them, or the choice between them, does."""

import logging

import numpy as np
import pytest
import torch

from flodl.distributed.averaging import kernels
from flodl.distributed.averaging.kernels import NativeBackend, TorchBackend
from flodl_sys import kernels as sys_kernels
from flodl_sys import names
from flodl_sys.errors import KernelArgumentError
from flodl_sys.kernels import NativeStatus


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def native():
    found = sys_kernels.status()
    if not found.is_native:
        assert names.SYS_NATIVE.get() != "1", f"a native build was demanded: {found.reason}"
        pytest.skip(f"pure build of flodl-sys: {found.reason}")
    return NativeBackend()


@pytest.fixture(params=["native", "torch"])
def backend(request):
    return request.getfixturevalue("native") if request.param == "native" else TorchBackend()


def floats(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def averaged(tensors, weights):
    """The declared order in NumPy, which fuses nothing."""
    total = np.float32(weights[0]) * tensors[0].float().numpy()
    for tensor, weight in zip(tensors[1:], weights[1:], strict=True):
        total = total + np.float32(weight) * tensor.float().numpy()
    return torch.from_numpy(total)


def assert_same_bits(got, wanted):
    assert got.dtype == wanted.dtype
    number = torch.int32 if got.dtype is torch.float32 else torch.int16
    nan = wanted.isnan()
    assert torch.equal(got.isnan(), nan)
    assert torch.equal(got.view(number)[~nan], wanted.view(number)[~nan])


WEIGHTS = [0.1, 0.2, 0.3, 0.25, 0.15]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5, 7), (70_001,)])
def test_average_has_the_bits_of_the_declared_order(backend, dtype, count, shape):
    tensors = [floats(*shape, seed=k).to(dtype) for k in range(count)]
    got = kernels.weighted_average(tensors, WEIGHTS[:count], backend=backend)
    assert got.shape == shape
    assert_same_bits(got, averaged(tensors, WEIGHTS[:count]))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_average_may_replace_any_of_its_tensors(backend, place):
    tensors = [floats(1000, seed=k) for k in range(3)]
    wanted = averaged(tensors, WEIGHTS[:3])
    got = kernels.weighted_average(tensors, WEIGHTS[:3], out=tensors[place], backend=backend)
    assert got is tensors[place]
    assert_same_bits(got, wanted)


def test_average_agrees_with_torchs_fused_operations_to_a_few_last_bits(backend):
    tensors = [floats(10_000, seed=k) for k in range(5)]
    fused = torch.zeros(10_000)
    for tensor, weight in zip(tensors, WEIGHTS, strict=True):
        fused.add_(tensor, alpha=weight)
    got = kernels.weighted_average(tensors, WEIGHTS, backend=backend)
    torch.testing.assert_close(got, fused, rtol=0, atol=5 * 2**-23)


@pytest.mark.parametrize("alpha", [0.0, 1e-60, 0.3, 0.5, 1.0])
def test_blend_has_the_bits_of_the_declared_order(backend, alpha):
    p, c = floats(999, seed=1), floats(999, seed=2)
    c[5] = float("inf")
    before = p.clone()
    got = kernels.easgd_blend_(p, c, alpha, backend=backend)
    assert got is p
    whole = {0.0: before, 1e-60: before, 1.0: c}
    wanted = whole[alpha] if alpha in whole else averaged([before, c], [1 - alpha, alpha])
    assert_same_bits(p, wanted)


def test_blend_by_one_replaces_a_nan_and_otherwise_keeps_it(backend):
    p, c = torch.tensor([float("nan"), 1.0]), torch.tensor([2.0, 3.0])
    kernels.easgd_blend_(p, c, 0.5, backend=backend)
    assert p[0].isnan()
    kernels.easgd_blend_(p, c, 1.0, backend=backend)
    assert p.tolist() == [2.0, 3.0]


def test_blend_agrees_with_lerp_to_a_few_last_bits(backend):
    p, c = floats(10_000, seed=1), floats(10_000, seed=2)
    wanted = torch.lerp(p, c, 0.3)
    torch.testing.assert_close(
        kernels.easgd_blend_(p, c, 0.3, backend=backend), wanted, rtol=0, atol=4 * 2**-22
    )


def test_packing_has_torchs_bits_and_unpacking_is_exact(backend):
    x = torch.randint(-(2**31), 2**31, (50_001,), generator=torch.Generator().manual_seed(1))
    x = x.to(torch.int32).view(torch.float32)
    packed = kernels.pack_bf16(x, backend=backend)
    assert_same_bits(packed, x.to(torch.bfloat16))
    assert_same_bits(kernels.unpack_bf16(packed, backend=backend), packed.float())


def test_parameters_are_changed_without_gradients_and_autograd_notices(backend):
    p = torch.nn.Parameter(floats(10, seed=1))
    loss = (p * p).sum()
    kernels.easgd_blend_(p, torch.zeros(10), 0.5, backend=backend)
    assert p.is_leaf
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def of(*shape, dtype=torch.float32):
    return torch.ones(*shape, dtype=dtype)


BASE = torch.ones(20)


@pytest.mark.parametrize(
    ("tensors", "weights", "out", "message"),
    [
        ([], [], None, "tensors is empty"),
        ([of(3)], [1.0, 2.0], None, "weights has 2 values for 1 tensors"),
        ([of(3), of(4)], [1.0, 2.0], None, r"tensors\[1\] has shape \(4,\), not \(3,\)"),
        ([of(3)], [1.0], of(4), r"out has shape \(4,\), not \(3,\)"),
        ([of(3, dtype=torch.float64)], [1.0], None, r"tensors\[0\] is torch.float64, not"),
        ([of(3), of(3, dtype=torch.bfloat16)], [1.0, 2.0], None, r"tensors\[1\] is torch.bfloat16"),
        ([of(3)], [1.0], of(3, dtype=torch.bfloat16), "out is torch.bfloat16, not torch.float32"),
        ([of(4, 3).t()], [1.0], None, r"tensors\[0\] has strides \(1, 3\)"),
        ([of(3).to("meta")], [1.0], None, r"tensors\[0\] is on meta, not on the CPU"),
        ([BASE[:10]], [1.0], BASE[5:15], r"tensors\[0\] and out share a part"),
    ],
)
def test_an_average_of_what_does_not_fit_is_refused(backend, tensors, weights, out, message):
    with pytest.raises(KernelArgumentError, match=message):
        kernels.weighted_average(tensors, weights, out=out, backend=backend)


def test_a_blend_of_what_does_not_fit_is_refused(backend):
    with pytest.raises(KernelArgumentError, match="alpha is nan, not a number from 0 to 1"):
        kernels.easgd_blend_(of(3), of(3), float("nan"), backend=backend)
    with pytest.raises(KernelArgumentError, match=r"c has shape \(4,\), not \(3,\)"):
        kernels.easgd_blend_(of(3), of(4), 0.5, backend=backend)
    with pytest.raises(KernelArgumentError, match="c and p share a part"):
        kernels.easgd_blend_(BASE[:5], BASE[1:6], 0.5, backend=backend)


def test_packing_over_its_own_memory_is_refused(backend):
    memory = of(8)
    with pytest.raises(KernelArgumentError, match="x and out share a part"):
        kernels.pack_bf16(memory[:4], out=memory.view(torch.bfloat16)[:4], backend=backend)
    with pytest.raises(KernelArgumentError, match="x is torch.float32, not torch.bfloat16"):
        kernels.unpack_bf16(memory, backend=backend)


def test_denormals_survive_torchs_flush_setting_on_the_native_backend(native):
    tiny = torch.full((70_000,), 1e-40)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        got = kernels.weighted_average([tiny, tiny], [1.0, 1.0], backend=native)
    finally:
        torch.set_flush_denormal(False)
    assert_same_bits(got, torch.full((70_000,), 1e-40) + torch.full((70_000,), 1e-40))


@pytest.fixture
def fresh_choice():
    kernels.default_backend.cache_clear()
    yield
    kernels.default_backend.cache_clear()


@pytest.mark.usefixtures("fresh_choice")
def test_a_pure_build_runs_on_torch_and_says_so_once(monkeypatch, caplog):
    pure = NativeStatus(is_native=False, reason="no C++ compiler found", hint="install g++")
    monkeypatch.setattr(sys_kernels, "status", lambda: pure)
    with caplog.at_level(logging.WARNING, logger=kernels.__name__):
        for _ in range(3):
            kernels.weighted_average([of(3)], [2.0])
    assert isinstance(kernels.default_backend(), TorchBackend)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "no C++ compiler found (install g++)" in line


@pytest.mark.usefixtures("fresh_choice")
def test_a_native_build_is_the_default_without_a_word(native, caplog):
    assert isinstance(kernels.default_backend(), NativeBackend)
    assert not caplog.records
