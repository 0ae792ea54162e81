"""Every builder method in one graph, trained, drawn, saved and loaded.

Run: python main.py [folder]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from flodl.graph import FlowBuilder, Graph
from flodl.nn import ArgmaxSelector, Reshape, SigmoidRouter, SoftmaxRouter, StateAdd, ThresholdHalt

WIDTH, BATCH, EPOCHS, STEPS = 8, 6, 5, 4


class HeavyWhenLoud(nn.Module):
    """A selector of our own: branch 1 when the refined values are large."""

    def forward(self, x: Tensor, refined: Tensor) -> int:
        """Return the index of a branch."""
        return int((x + refined).abs().mean() > 1.0)


def layer() -> nn.Module:
    """Return a small block."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))


def encoder() -> Graph:
    """Return a graph of its own, to be nested."""
    return (
        FlowBuilder(nn.Linear(2, WIDTH)).tag("hidden").through(nn.GELU()).label("encoder").build()
    )


def build() -> Graph:
    """Return one graph with every builder method in it."""
    return (
        FlowBuilder(encoder())
        .tag("encoded")
        .input("context")
        .through(nn.LayerNorm(WIDTH))
        .also(layer())
        .also_with(nn.Linear(WIDTH, WIDTH), layer())
        .fork(nn.Linear(WIDTH, 1))
        .tag("confidence")
        .split([layer(), layer(), layer()])
        .merge("mean")
        .map(nn.Linear(WIDTH // 4, WIDTH // 4))
        .slices(4)
        .map(nn.Tanh())
        .each()
        .tag("rows")
        .map(layer())
        .batched()
        .over("rows")
        .through(Reshape(BATCH, 2, WIDTH // 2), Reshape(BATCH, WIDTH))
        .loop_body(layer())
        .for_n(3, trace=True)
        .tag("refined")
        .loop_body(nn.Linear(WIDTH, WIDTH))
        .while_cond(ThresholdHalt(2.0), 3)
        .loop_body(layer())
        .until_cond(ThresholdHalt(1.5), 3, mode="masked")
        .gate(SoftmaxRouter(WIDTH, 2), [layer(), layer()])
        .using("encoded")
        .gate(SigmoidRouter(WIDTH, 2), [layer(), layer()])
        .switch(HeavyWhenLoud(), [nn.Identity(), layer()])
        .using("refined")
        .switch(ArgmaxSelector(WIDTH, 2), [layer(), layer()], mode="dense")
        .through(StateAdd())
        .using("memory", "context")
        .through(nn.LayerNorm(WIDTH))
        .tag("memory")
        .state("memory", (-1, WIDTH))
        .split({"left": nn.Linear(WIDTH, 2), "right": nn.Linear(WIDTH, 2)})
        .tag_group("heads")
        .merge("add")
        .tag("output")
        .internal("rows")
        .label("showcase")
        .build()
    )


def batches(epoch: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return inputs, context and targets of one epoch."""
    generator = torch.Generator().manual_seed(epoch)
    return [
        (x, torch.zeros(BATCH, WIDTH), x.flip(1).sin())
        for x in torch.randn(STEPS, BATCH, 2, generator=generator)
    ]


def train(model: Graph) -> None:
    """Train with a cosine schedule and clipped gradients."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * STEPS)
    model.enable_profiling()
    for epoch in range(EPOCHS):
        for x, context, target in batches(epoch):
            loss = functional.mse_loss(model(x, context), target)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            model.collect_with("confidence", "heads", reduce="norm")
            model.record_scalar("loss", loss)
            model.end_step()
        model.end_sequence()
        model.end_epoch()


def main(folder: Path) -> Graph:
    """Train the model and write its pictures, curves, log and checkpoint into a folder."""
    torch.manual_seed(0)
    model = build()
    train(model)
    (folder / "showcase.dot").write_text(model.dot())
    model.svg(folder / "showcase.svg", expand=1)
    model.svg_with_profile(folder / "profile.svg")
    model.plot_html(folder / "training.html")
    model.write_log(folder / "training.log", total_epochs=EPOCHS)
    model.save_checkpoint(folder / "showcase.fdl.gz")

    again = build()
    print(again.load_checkpoint(folder / "showcase.fdl.gz", strict=True))
    again.eval()
    x, context, _ = batches(0)[0]
    with torch.no_grad():
        print(again(x, context))
    print(model.tree_summary())
    return model


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "showcase-out")
    place.mkdir(parents=True, exist_ok=True)
    main(place)
