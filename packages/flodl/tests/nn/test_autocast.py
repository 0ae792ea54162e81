import pytest
import torch

from flodl.nn import AutocastGuard, autocast, is_autocast_enabled


@pytest.fixture
def state():
    def read():
        return (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        )

    return read


def product():
    return torch.ones(2, 2) @ torch.ones(2, 2)


def test_the_cpu_computes_in_bfloat16(state):
    before = state()
    with autocast(device="cpu") as context:
        assert context.dtype == torch.bfloat16
        assert is_autocast_enabled("cpu")
        assert product().dtype == torch.bfloat16
    assert state() == before
    assert not is_autocast_enabled("cpu")
    assert product().dtype == torch.float32


def test_the_outer_state_comes_back_also_after_an_error(state):
    with autocast(device="cpu"):
        outer = state()
        with pytest.raises(KeyError), autocast(torch.float16, "cpu", cache_enabled=False):
            assert state() == (True, torch.float16, False)
            raise KeyError
        assert state() == outer


def test_one_object_may_be_entered_again_within_itself(state):
    before, context = state(), autocast(device="cpu")
    with context:
        with context:
            assert is_autocast_enabled("cpu")
        assert is_autocast_enabled("cpu")
    assert state() == before


def test_it_decorates_functions_also_recursive_ones(state):
    before = state()

    @autocast(device="cpu")
    def work(depth):
        """Multiply."""
        if depth:
            work(depth - 1)
        return product()

    assert work(2).dtype == torch.bfloat16
    assert state() == before
    assert work.__doc__ == "Multiply."


def test_a_guard_lasts_until_it_is_closed(state):
    before = state()
    guard = AutocastGuard(device="cpu")
    assert product().dtype == torch.bfloat16
    guard.close()
    guard.close()
    assert state() == before
    with AutocastGuard(device=torch.device("cpu")):
        assert is_autocast_enabled("cpu")
    assert state() == before


def test_other_dtypes_are_refused():
    with pytest.raises(ValueError, match=r"dtype=torch\.float64"):
        autocast(torch.float64)


@pytest.mark.cuda
def test_the_gpu_is_the_default_and_its_dtype_fits():
    context = autocast()
    assert context.device_type == "cuda"
    expected = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    assert context.dtype == expected
    with context:
        assert is_autocast_enabled()
        x = torch.ones(2, 2, device="cuda")
        assert (x @ x).dtype == expected


@pytest.mark.cuda
def test_weight_casts_are_not_kept_while_capturing():
    weight = torch.nn.Parameter(torch.ones(8, 8, device="cuda"))
    x = torch.ones(8, 8, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), autocast():
        torch.mm(x, weight)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream), autocast():
        assert not torch.is_autocast_cache_enabled()
        result = x @ weight
    with torch.no_grad():
        weight.fill_(2.0)
    graph.replay()
    torch.cuda.synchronize()
    assert result[0, 0].item() == 16.0
