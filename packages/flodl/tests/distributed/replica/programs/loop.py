"""A plain script with a loop of its own: what it prints is the same however it is started."""

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

from flodl import DataLoader, Ddp, DdpConfig, FlowBuilder, Rendezvous, TensorDataSet, Trainer

torch.set_num_threads(1)
STEPS = 12  # of ten that split rows equally, and two by what was measured


def build(device):
    torch.manual_seed(0)
    flow = FlowBuilder(nn.Linear(4, 8)).tag("hidden").through(nn.Tanh())
    return flow.through(nn.Linear(8, 1)).build().to(device)


def loss(output, batch, ctx):
    weights.append(ctx.weight)
    return (output - batch["y"]).square().mean() + 0.1 * ctx.tags["hidden"].square().mean()


weights = []
x = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
model = build("cpu")
config = DdpConfig(max_anchor=0)
Trainer.setup_with(model, build, lambda params: torch.optim.Adam(params, lr=0.01), config)
model.set_data_loader(DataLoader(TensorDataSet(x=x, y=x.sum(1, keepdim=True)), batch_size=10), "x")
model.set_loss_fn(loss)
losses, epoch = [], 0
while len(losses) < STEPS:
    for batch in model.epoch(epoch):
        value = model.forward_batch(batch)
        value.backward()
        model.step()
        losses.append(value.item() * weights[-1])
    epoch += 1

if "RANK" in os.environ:  # the bypass tier beside it, over the same store
    device = model.devices[0]
    mine = nn.Linear(2, 1).to(device)
    with Ddp.wrap(mine, device, int(os.environ["RANK"]), Rendezvous.from_env()) as ddp:
        ddp.sync_params()
        sums = ddp.gather([[mine.weight.sum().item()]])
        assert sums[0] == sums[1]

result = {
    "world": model.world_size,
    "here": len(model.devices),
    "losses": losses,
    "parameters": [p.detach().flatten().tolist() for p in model.parameters()],
}
Path(sys.argv[1], os.environ.get("RANK", "0")).write_text(json.dumps(result))
