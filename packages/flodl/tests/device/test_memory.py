import pytest
import torch

from flodl.device import gpu_active_bytes, gpu_memory_info, is_gpu_oom


def wrapped(inner):
    try:
        try:
            raise inner
        except RuntimeError as error:
            raise ValueError("in batch 3") from error
    except ValueError as error:
        return error


def test_running_out_of_memory_is_recognized_also_when_wrapped():
    assert is_gpu_oom(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_gpu_oom(wrapped(torch.OutOfMemoryError("CUDA out of memory")))
    assert is_gpu_oom(RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"))
    assert not is_gpu_oom(RuntimeError("shape mismatch"))
    assert not is_gpu_oom(MemoryError("host"))


@pytest.mark.cuda
def test_memory_of_a_gpu_adds_up():
    block = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    info = gpu_memory_info()
    assert info.free + info.used == info.total
    assert info.reserved >= info.allocated >= block.nbytes
    assert gpu_active_bytes() == info.allocated
