"""Use of the installed wheel, with nothing else of ours around: build, train, save, load."""

from pathlib import Path

import torch

from flodl import DataLoader, FlowBuilder, Monitor, TensorDataSet, Trainer, load_checkpoint
from flodl.data import datasets


def model(device: torch.device) -> torch.nn.Module:
    return (
        FlowBuilder(torch.nn.Flatten())
        .through(torch.nn.Linear(784, 16))
        .also(torch.nn.Linear(16, 16))
        .tag("hidden")
        .through(torch.nn.Linear(16, 10))
        .build()
        .to(device)
    )


def step(net: torch.nn.Module, batch) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(net(batch["image"]), batch["label"])


torch.set_num_threads(1)
train = datasets.load("mnist", split="train", source="mini")
handle = (
    Trainer.builder(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1), step)
    .dataset(train)
    .batch_size(100)
    .num_epochs(2)
    .devices(["cpu"])
    .monitor(Monitor(2))
    .save_path("model")
    .run()
)
first, last = handle.metrics()
assert last.avg_loss < first.avg_loss, (first.avg_loss, last.avg_loss)
copy = model(torch.device("cpu"))
report = load_checkpoint(Path("model.fdl"), copy)
assert report.is_complete, report
assert all(
    torch.equal(value, handle.join().state_dict()[name])
    for name, value in copy.state_dict().items()
)
loader = DataLoader(TensorDataSet(torch.arange(10.0)), batch_size=5, shuffle=False)
assert [batch[0].sum().item() for batch in loader.epoch(0)] == [10.0, 35.0]
print("flodl works alone")
