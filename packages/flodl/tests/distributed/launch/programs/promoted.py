"""A user's script that says nothing of devices: on two GPUs it promotes itself to a rank on each.

Each rank notes when its steps began and what memory of its GPU was free; the script prints what
came of the run as JSON, last line. ``--ranks 2`` runs the same on the CPU.
"""

import argparse
import itertools
import json
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn

from flodl import DiLoCo, ElasticConfig, ElCheConfig, StopTraining, TensorDataSet, Trainer
from flodl.sys import detect_gpus

DEATHS = 25
STEPS_OF_A_LIFE = 12
parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["train", "slow", "kill", "between", "freeze", "oom"])
parser.add_argument("folder", type=Path)
parser.add_argument("--mode", default="nccl_sync")
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--capture", default="off")
parser.add_argument("--ranks", type=int, default=None)
told = parser.parse_args()

place = json.loads(os.environ.get("FLODL_INTERNAL_RUN") or "{}")
RANK, LIFE = place.get("number", -1), place.get("incarnation", 0)
POINTS = torch.randn(2048, 4, generator=torch.Generator().manual_seed(0))
DATA = TensorDataSet(x=POINTS, y=(POINTS.sum(1) > 0).long())
numbers = itertools.count(1)
notes = None
if RANK >= 0 and told.capture == "off":  # a captured step runs no Python
    notes = (told.folder / f"steps-{RANK}-{LIFE}").open("a", buffering=1)


def build(device):
    layers = [nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)]
    return nn.Sequential(*layers).to(device)


def step(model, batch):
    number = next(numbers)
    on_gpu = batch["x"].is_cuda
    if notes is not None:
        free = torch.cuda.mem_get_info()[0] if on_gpu and told.what == "kill" else 0
        notes.write(f"{time.time()} {free}\n")
    match told.what:
        case "kill" if RANK == 1 and LIFE < DEATHS and number == STEPS_OF_A_LIFE:
            die(signal.SIGKILL)
        case "kill" if RANK == 1 and number == STEPS_OF_A_LIFE:
            (told.folder / "survived").touch()
        case "freeze" if RANK == 1 and LIFE == 0 and number == STEPS_OF_A_LIFE:
            die(signal.SIGSTOP)
        case "slow" if on_gpu:
            torch.cuda._sleep(50_000_000 if RANK == 1 else 20_000_000)
        case "slow":
            time.sleep(0.05 if RANK == 1 else 0.02)
        case "oom" if RANK == 1 and len(batch["x"]) > told.batch // 2:
            run_out_of_memory(batch["x"].device)
    return nn.functional.cross_entropy(model(batch["x"]), batch["y"])


def die(number):
    """The other rank is in the all-reduce of this step by then, or comes to it and finds nobody."""
    (told.folder / f"death-{LIFE}").write_text(str(time.time()))
    os.kill(os.getpid(), number)


def run_out_of_memory(device):
    if device.type != "cuda":
        raise torch.OutOfMemoryError("CUDA out of memory")
    torch.empty(1 << 45, dtype=torch.uint8, device=device)


def between(epoch):
    """Die where no step is running, so that also captured steps meet a new generation."""
    if told.what == "between" and RANK == 1 and LIFE == 0 and epoch == 2:
        die(signal.SIGKILL)


def accuracy(model, batch, context):
    return {"accuracy": (model(batch["x"]).argmax(1) == batch["y"]).float().mean()}


accuracies, began = [], []


def metrics_fn(metrics):
    began.append(time.monotonic())
    if (told.folder / "survived").exists():
        raise StopTraining


mode, _, outer = told.mode.partition("-")
builder = (
    Trainer.builder(build, lambda parameters: torch.optim.Adam(parameters, lr=0.01), step)
    .dataset(DATA)
    .batch_size(told.batch)
    .num_epochs(told.epochs)
    .seed(told.seed)
    .lr_scale_ratio(0.0)  # one GPU with the whole batch has the rate of both
    .capture(told.capture)
    .elastic(ElasticConfig(respawn=2 * DEATHS, grow_interval=0.2))
    .eval_dataset(DATA)
    .eval_fn(accuracy)
    .eval_result_fn(lambda epoch, values: accuracies.append(float(values["accuracy"])))
    .metrics_fn(metrics_fn)
    .epoch_fn(between)
    .save_path(told.folder / "model")
)
if told.ranks is not None:
    is_gloo = mode.startswith("nccl")
    builder.ranks(told.ranks)
    builder.elche(getattr(ElCheConfig, mode)(**({"collective": "gloo"} if is_gloo else {})))
elif len(detect_gpus()) > 1 or RANK >= 0:
    builder.elche(getattr(ElCheConfig, mode)())
if outer == "diloco":
    builder.outer_optimizer(DiLoCo())
handle = builder.run()
state = handle.join()
report = handle.report
print(
    json.dumps(
        {
            "world": handle.world_size,
            "loss": [metrics.avg_loss for metrics in handle.metrics()],
            "accuracy": accuracies,
            "accounts": [[each.committed, each.total] for each in report.accounting],
            "deaths": [death["cause"] for death in report.deaths],
            "generations": len(report.generations),
            "wall_s": began[-1] - began[0],
            "parameters": {name: p.flatten().tolist() for name, p in state.params.items()},
        }
    )
)
