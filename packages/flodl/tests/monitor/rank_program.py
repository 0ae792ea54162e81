"""One rank of a run over two Gloo processes; prints its telemetry, a JSON line a window.

Run as ``python rank_program.py RANK STORE_FILE EPOCHS``; a line on its input ends an epoch's wait.
"""

import json
import sys

import torch
from torch import distributed

from flodl.metrics import ScalarScope, record_scalar
from flodl.records.telemetry import TelemetrySums

WINDOWS, BATCH = 4, 8


def train(rank, epochs):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    sums, scope, step = TelemetrySums(), ScalarScope(), 0
    for epoch in range(epochs):
        for _ in range(WINDOWS):
            x = torch.randn(BATCH * (rank + 1), 2, generator=generator)
            with scope.active():
                loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
                record_scalar("rows", float(len(x)))
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                distributed.all_reduce(parameter.grad)
            optimizer.step()
            step += 1
            sums.add({"loss": (loss.item(), 1), **scope.drain()}, work=len(x))
            told = sums.take(
                rank=rank,
                step=step,
                epoch=epoch,
                res={"gpu_util": (0.0, 50.0 + rank, 100.0)},
                label=f"fake card {rank}",
                device=rank,
            )
            print(json.dumps(told.body()), flush=True)
        sys.stdin.readline()


def main():
    rank, file, epochs = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    store = distributed.FileStore(file, 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    try:
        train(rank, epochs)
    finally:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
