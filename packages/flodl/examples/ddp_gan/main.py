"""An adversarial pair on two replicas: the loop belongs to the user, ``Ddp`` only averages.

The generator learns to turn noise into points on a circle. Each rank draws noise and real points
of its own; after each backward the gradients of the one network that is about to step are averaged.
"""

import math

import torch
from torch import nn

from flodl import manual_seed
from flodl.distributed.collective.rendezvous import Rendezvous
from flodl.distributed.ddp import Ddp

BATCH = 64


def generator():
    """Make the network that turns noise into points."""
    return nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))


def critic():
    """Make the network that tells real points from made ones."""
    return nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))


def circle(count, rng):
    """Draw real points."""
    angle = 2 * math.pi * torch.rand(count, generator=rng)
    return torch.stack([angle.cos(), angle.sin()], 1)


def train(make, judge, rank, meeting, steps, device="cpu"):
    """Train one rank's pair; every rank ends with the same."""
    rng = torch.Generator().manual_seed(rank)  # another stream of data on each rank
    real_or_not = nn.BCEWithLogitsLoss()
    with (
        Ddp.wrap(make, device, rank, meeting) as makes,
        Ddp.wrap(judge, device, rank, meeting) as judges,
    ):
        makes.sync_params()
        judges.sync_params()
        to_make = torch.optim.Adam(make.parameters(), lr=5e-3, betas=(0.5, 0.9))
        to_judge = torch.optim.Adam(judge.parameters(), lr=5e-3, betas=(0.5, 0.9))
        yes, no = torch.ones(BATCH, 1, device=device), torch.zeros(BATCH, 1, device=device)
        for _ in range(steps):
            noise = torch.randn(BATCH, 4, generator=rng).to(device)
            real, fake = circle(BATCH, rng).to(device), make(noise)

            to_judge.zero_grad()
            loss = real_or_not(judge(real), yes) + real_or_not(judge(fake.detach()), no)
            loss.backward()
            judges.all_reduce_gradients()
            to_judge.step()

            to_make.zero_grad()
            real_or_not(judge(fake), yes).backward()
            makes.all_reduce_gradients()
            to_make.step()


def distance_from_circle(make, count=512):
    """Return how far generated points are from the circle, on average."""
    rng = torch.Generator().manual_seed(99)
    with torch.no_grad():
        points = make(torch.randn(count, 4, generator=rng))
    return (points.norm(dim=1) - 1).abs().mean().item()


def main(steps=400):
    """Meet where torchrun says, and train; without torchrun as the only rank."""
    manual_seed(0)
    try:
        meeting = Rendezvous.from_env()
    except ValueError:
        meeting = Rendezvous.local(1)
    make = generator()
    train(make, critic(), meeting.rank or 0, meeting, steps)
    print(f"rank {meeting.rank or 0}: {distance_from_circle(make):.3f} from the circle")
    return make


if __name__ == "__main__":
    main()
