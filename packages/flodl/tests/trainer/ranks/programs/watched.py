"""A user's script: two ranks, watched by all means; its last line says what the launcher has."""

import json
import sys
import time
from pathlib import Path

import torch
from torch import nn

from flodl import ElCheConfig, FlowBuilder, Monitor, TensorDataSet, Trainer, record_scalar
from flodl.monitor import Timeline

torch.set_num_threads(1)
FOLDER, PORT = Path(sys.argv[1]), int(sys.argv[2])
POINTS = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
DATA = TensorDataSet(x=POINTS, y=(POINTS.sum(1) > 0).long())
timeline = Timeline(spill=FOLDER / "spill")


def build(device):
    flow = FlowBuilder(nn.Linear(4, 16)).through(nn.ReLU()).through(nn.Linear(16, 2))
    return flow.label("small").build().to(device)


def step(model, batch):
    time.sleep(0.01)
    scores = model(batch["x"])
    record_scalar("top1", (scores.argmax(1) == batch["y"]).float().mean())
    return nn.functional.cross_entropy(scores, batch["y"])


def accuracy(model, batch, context):
    return {"accuracy": (model(batch["x"]).argmax(1) == batch["y"]).float().mean()}


handle = (
    Trainer.builder(build, lambda parameters: torch.optim.SGD(parameters, lr=0.1), step)
    .dataset(DATA)
    .batch_size(8)
    .num_epochs(8)
    .ranks(2)
    .elche(ElCheConfig.cpu_cadence(anchor=4))
    .eval_dataset(DATA)
    .eval_fn(accuracy)
    .reports_per_epoch(4)
    .timeline(timeline)
    .profile_graph()
    .dashboard(PORT, token="for-viewers")
    .record_log(FOLDER / "log")
    .save_dashboard(FOLDER / "page.html")
    .run()
)
elsewhere = Monitor(8, progress="none")
handle.setup_monitor(elsewhere)
handle.join()
body = timeline.body()
print(
    json.dumps(
        {
            "kinds": sorted({event["k"] for event in body["events"]}),
            "ends": [e["epoch"] for e in body["events"] if e["k"] == "epoch_end"],
            "samples": len(timeline),
            "rank_hosts": sorted({row["host"] for row in body["rank_samples"]}),
            "host": body["host"],
            "elsewhere": elsewhere.board.api_meta(),
            "picture": handle.architecture_svg,
        }
    )
)
