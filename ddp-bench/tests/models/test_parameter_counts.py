import pytest
import torch

from ddp_bench.registry import BUILT_IN
from flodl import Batch, Graph

COUNTS = {
    "logistic": 7_850,
    "mlp": 203_530,
    "lenet": 44_470,
    "conv-ae": 9_569,
    "char-rnn": 946_625,
}


@pytest.mark.parametrize("definition", BUILT_IN, ids=lambda definition: definition.name)
def test_model_has_the_documented_number_of_parameters(definition, facts):
    model = definition.build(torch.device("cpu"), facts)
    assert sum(p.numel() for p in model.parameters()) == COUNTS[definition.name]


@pytest.mark.parametrize("definition", BUILT_IN, ids=lambda definition: definition.name)
def test_model_is_a_graph_whose_step_trains_every_parameter(definition, facts):
    torch.manual_seed(0)
    model = definition.build(torch.device("cpu"), facts)
    assert isinstance(model, Graph)
    batch = Batch(
        [torch.rand(4, 1, 28, 28), torch.arange(4), *torch.randint(65, (2, 4, 8))],
        ["image", "label", "input", "target"],
    )
    loss = definition.train_step(model, batch)
    loss.backward()
    assert loss.shape == ()
    assert [name for name, p in model.named_parameters() if not p.grad.any()] == []


@pytest.mark.parametrize("definition", BUILT_IN, ids=lambda definition: definition.name)
def test_optimizer_gets_the_learning_rate(definition, facts):
    model = definition.build(torch.device("cpu"), facts)
    optimizer = definition.optimizer(model.parameters(), 0.125)
    assert [group["lr"] for group in optimizer.param_groups] == [0.125]
