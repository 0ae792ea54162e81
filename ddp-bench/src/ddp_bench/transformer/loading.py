"""Time and memory of loading one checkpoint, each time in a fresh process, in turns.

The reference maps the file and reads nothing of it until the weights are used. flodl-hf does the
same with ``mmap=True``; by default it copies the weights, so that no file is held.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_CHILD = r"""
import json, os, resource, sys, time
import torch
torch.set_num_threads(int(sys.argv[3]))

def resident():
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    return {name: int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM", "RssAnon")}

started = time.perf_counter()
if sys.argv[1] != "reference":
    from flodl_hf import AutoModelForSequenceClassification as Auto
    import flodl_hf.auto, flodl_hf.heads.loading
    options = {"tokenizer": None, "mmap": sys.argv[1] == "mapped"}
else:
    from transformers import AutoModelForSequenceClassification as Auto
    from transformers import BertForSequenceClassification
    options = {}
imported = time.perf_counter()
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the high-water mark starts afresh
before = resident()
model = Auto.from_pretrained(sys.argv[2], **options)
loaded = time.perf_counter()
after = resident()
count = sum(p.numel() for p in model.parameters())
print(json.dumps({
    "import_s": imported - started,
    "load_s": loaded - imported,
    "peak": after["VmHWM"] - before["VmRSS"],
    "parameters": count,
}))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loading:
    """How both load one checkpoint.

    Attributes:
        bytes: Size of the file.
        mapped_s: Seconds of flodl-hf with ``mmap=True``.
        copied_s: Its seconds by default.
        load: Mapped over the reference's, median over rounds, imports excluded.
        copied: Copied over the reference's, which has not read the weights by then.
        total: Copied over the reference's, with the imports.
        peak: Memory that copying needs at most, over the size of the file.
        reference_peak: The same for the reference.
    """

    bytes: int
    mapped_s: float
    copied_s: float
    reference_s: float
    load: float
    low: float
    high: float
    copied: float
    total: float
    peak: float
    reference_peak: float
    rounds: int


def measure_loading(folder: Path, *, rounds: int, threads: int = 2) -> Loading:
    """Load a checkpoint with both, in turns."""
    size = (folder / "model.safetensors").stat().st_size
    found: dict[str, list[dict[str, float]]] = {"reference": [], "mapped": [], "copied": []}
    for number in range(rounds + 1):
        order = list(found)
        for name in order if number % 2 else reversed(order):
            result = _child(name, folder, threads)
            if number:  # the first round warms the page cache
                found[name].append(result)
    theirs, mapped, copied = found["reference"], found["mapped"], found["copied"]
    ratios = _over(mapped, theirs, "load_s")
    low, _, high = statistics.quantiles(ratios, n=4)
    return Loading(
        bytes=size,
        mapped_s=_median(mapped, "load_s"),
        copied_s=_median(copied, "load_s"),
        reference_s=_median(theirs, "load_s"),
        load=statistics.median(ratios),
        low=low,
        high=high,
        copied=statistics.median(_over(copied, theirs, "load_s")),
        total=statistics.median(_over(copied, theirs, "load_s", "import_s")),
        peak=_median(copied, "peak") / size,
        reference_peak=_median(theirs, "peak") / size,
        rounds=rounds,
    )


def _median(results: list[dict[str, float]], name: str) -> float:
    return statistics.median(each[name] for each in results)


def _over(ours: list[dict[str, float]], theirs: list[dict[str, float]], *names: str) -> list[float]:
    pairs = zip(ours, theirs, strict=True)
    return [sum(a[name] for name in names) / sum(b[name] for name in names) for a, b in pairs]


def _child(name: str, folder: Path, threads: int) -> dict[str, float]:
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, name, str(folder), str(threads)],
        capture_output=True,
        text=True,
        check=True,
        env=environ,
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result
