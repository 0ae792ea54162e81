"""A network that is slow on purpose, for the arms that are not flodl's."""

import time

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from flodl.testing.sim import SlowLink


def is_slow(link: SlowLink) -> bool:
    """Return whether a link adds anything."""
    return link.delay_s(1) > 0


def wait_for(link: SlowLink, nbytes: int) -> None:
    """Sleep as long as an average is late in which a rank sends so many bytes."""
    if is_slow(link):
        time.sleep(link.delay_s(nbytes))


def late_allreduce(link: SlowLink, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Average a bucket of gradients as DDP does, and be late: a hook of DDP.

    DDP looks at its annotations, which must therefore be no strings.
    """

    def be_late(done: torch.futures.Future[Tensor]) -> Tensor:
        averaged = done.value()
        wait_for(link, averaged.nbytes)
        return averaged

    whole = dist.group.WORLD
    assert whole is not None
    return allreduce_hook(whole, bucket).then(be_late)
