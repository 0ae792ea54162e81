import pytest
import torch
from torch import nn

from flodl.core.errors import StepContractError
from flodl.distributed.worker.job import refuse_sharded


class DTensor(torch.Tensor):
    """Bears the name by which torch's own is known."""


class FullyShardedDataParallel(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module


def test_a_model_that_is_spread_over_processes_is_refused():
    model = nn.Sequential(nn.Linear(2, 2))
    refuse_sharded(model)
    with pytest.raises(StepContractError, match="the model is a FullyShardedDataParallel"):
        refuse_sharded(FullyShardedDataParallel(model))
    model[0].weight = nn.Parameter(torch.zeros(2, 2).as_subclass(DTensor))
    with pytest.raises(StepContractError, match=r"0\.weight is a DTensor"):
        refuse_sharded(model)


def test_a_model_that_fsdp_has_spread_is_refused():
    distributed = torch.distributed
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        from torch.distributed.fsdp import fully_shard

        model = nn.Linear(4, 4)
        fully_shard(model, mesh=distributed.init_device_mesh("cpu", (1,)))
        with pytest.raises(StepContractError, match="weight is a DTensor"):
            refuse_sharded(model)
    finally:
        distributed.destroy_process_group()
