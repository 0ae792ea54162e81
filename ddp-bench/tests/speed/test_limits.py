import dataclasses
import json

import torch

from ddp_bench.speed import limits


def test_processor_has_rates_and_no_kernels():
    found = limits.measure(torch.device("cpu"), size=64, elements=4096)
    rates = dataclasses.asdict(found)
    assert rates.pop("kernel_us") is None
    assert all(rate > 0 for rate in rates.values())


def test_precision_of_products_is_put_back():
    before = torch.get_float32_matmul_precision()
    limits.measure(torch.device("cpu"), size=16, elements=64)
    assert torch.get_float32_matmul_precision() == before


def test_program_prints_what_reads_back(monkeypatch, capsys):
    found = limits.Limits(fp32=1.0, tf32=2.0, bf16=3.0, copy=4.0, kernel_us=None)
    monkeypatch.setattr(limits, "measure", lambda device: found)
    assert limits.main(["--device", "cpu"]) == 0
    assert limits.Limits(**json.loads(capsys.readouterr().out)) == found
