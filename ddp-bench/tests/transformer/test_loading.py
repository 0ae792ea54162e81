import pytest

from ddp_bench.transformer.loading import measure_loading
from ddp_bench.transformer.pairs import write_checkpoint

pytestmark = pytest.mark.slow


def test_both_load_in_fresh_processes(tmp_path):
    write_checkpoint("bert", 1, tmp_path, hidden_size=64, num_attention_heads=2,
                     intermediate_size=64, vocab_size=1000)  # fmt: skip
    found = measure_loading(tmp_path, rounds=2, threads=1)
    assert found.bytes == (tmp_path / "model.safetensors").stat().st_size
    assert found.low <= found.load <= found.high
    assert found.mapped_s > 0
    assert found.copied_s > 0
    assert found.reference_s > 0
