"""How much memory a load and a save take, in a process of their own."""

import json
import os
import subprocess
import sys

import pytest
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

PROGRAM = r"""
import json, sys
import torch
from flodl_hf import AutoModelForSequenceClassification as Auto
import flodl_hf.auto, flodl_hf.heads.loading, flodl_hf.weights.write

def resident(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

def peak(call):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the high-water mark starts afresh
    before = resident("VmRSS")
    result = call()
    return result, resident("VmHWM") - before

head, loading = peak(lambda: Auto.from_pretrained(sys.argv[1], tokenizer=None))
cast = {"dtype": torch.bfloat16}
_, casting = peak(lambda: Auto.from_pretrained(sys.argv[1], tokenizer=None, **cast))
write = flodl_hf.weights.write.save_safetensors_from
_, saving = peak(lambda: write(head.graph, sys.argv[2]))
print(json.dumps({
    "loading": loading, "casting": casting, "saving": saving,
    "compiler": "torch._dynamo" in sys.modules,
}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_load_takes_the_size_of_the_file_and_a_save_next_to_nothing(saved, tmp_path):
    folder, _ = saved(
        "bert", "seqcls", hidden_size=512, intermediate_size=2048, num_hidden_layers=8,
        vocab_size=20_000,
    )  # fmt: skip
    file, again = folder / "model.safetensors", tmp_path / "again.safetensors"
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(again)],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
        env=environ,
    )
    found, size = json.loads(done.stdout.splitlines()[-1]), file.stat().st_size
    largest = max(t.numel() * t.element_size() for t in load_file(file).values())
    assert size > 100e6
    assert found["loading"] <= 1.1 * size
    assert found["casting"] <= 0.55 * size + largest
    assert found["saving"] <= 0.1 * size
    assert not found["compiler"]
    assert load_file(again).keys() == load_file(file).keys()
