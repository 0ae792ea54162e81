import pytest
import torch
from torch import nn

from flodl.core.errors import TopologyError
from flodl.graph import register_module
from flodl.graph.topology.modules import build_module, describe_module
from flodl.nn import Lambda, Reshape, SoftmaxRouter

MODULES = [
    nn.Linear(3, 4),
    nn.Linear(3, 4, bias=False),
    nn.Conv2d(3, 6, (3, 1), stride=2, padding=1, groups=3, bias=False),
    nn.ConvTranspose2d(3, 6, 4, 2, 1),
    nn.BatchNorm2d(3, momentum=None, affine=False),
    nn.LayerNorm((3, 4), elementwise_affine=False),
    nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True, dropout=0.1),
    nn.GRUCell(3, 4, bias=False),
    nn.MultiheadAttention(4, 2, bias=False, batch_first=True),
    nn.Embedding(5, 3, padding_idx=1),
    nn.Dropout(0.25),
    nn.GELU(approximate="tanh"),
    nn.MaxPool2d(2),
    nn.AdaptiveAvgPool2d((None, 1)),
    nn.Flatten(1, 2),
    nn.Softmax(dim=-1),
    nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Tanh())),
    nn.ModuleList([nn.Tanh()]),
    nn.ModuleDict({"a": nn.Linear(1, 1)}),
    Reshape(2, -1),
    SoftmaxRouter(3, 2),
    Lambda(torch.tanh),
    Lambda(nn.functional.gelu),
]


def again(module, registry=None):
    return build_module(
        describe_module(module, registry or {}, lambda child: False), registry or {}
    )


@pytest.mark.parametrize("module", MODULES, ids=range(len(MODULES)))
def test_modules_are_made_again(module):
    made = again(module)
    assert repr(made) == repr(module)
    assert {n: t.shape for n, t in made.state_dict().items()} == {
        n: t.shape for n, t in module.state_dict().items()
    }


class Plain(nn.Module):
    def __init__(self, width, scale=2.0):
        super().__init__()
        self.width, self.scale = width, scale
        self.layer = nn.Linear(width, width)


class Unknown(nn.Module):
    pass


class Configured(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(n, n) for n in parts)

    def get_config(self):
        return {"widths": [part.in_features for part in self.parts]}

    @classmethod
    def from_config(cls, config):
        return cls(config["widths"])


def test_own_classes_are_registered_by_name():
    made = again(Plain(3, 0.5), {"plain": Plain})
    assert (made.width, made.scale) == (3, 0.5)
    assert len(again(Configured([1, 2]), {"configured": Configured}).parts) == 2
    register_module("tests.Plain")(Plain)
    register_module("tests.Plain")(Plain)
    assert again(Plain(3)).width == 3
    with pytest.raises(TopologyError, match="'tests.Plain'.: that name is taken"):
        register_module("tests.Plain")(Configured)
    with pytest.raises(TopologyError, match="is taken"):
        register_module("torch.nn.Linear")(Configured)


def test_own_functions_are_registered_too():
    def double(x):
        return 2 * x

    assert again(Lambda(double), {"double": double}).fn is double


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Unknown(), "Unknown"),
        (Lambda(lambda x: x), "function '<lambda>'"),
        (nn.TransformerEncoderLayer(4, 2), "no attribute 'd_model': give it get_config"),
    ],
)
def test_what_cannot_be_described_is_named(module, message):
    with pytest.raises(TopologyError, match=message):
        describe_module(module, {}, lambda child: False)


def test_module_changed_after_construction_is_refused():
    layer = nn.Linear(3, 4)
    layer.weight = nn.Parameter(torch.ones(4, 5))
    with pytest.raises(TopologyError, match=r"Linear \(changed since it was constructed\)"):
        describe_module(layer, {}, lambda child: False)


@pytest.mark.parametrize(
    "description",
    [
        {"type": "os.system", "config": {"command": "true"}},
        {"function": "os.system"},
        {"function": "torch.nn.Linear"},
        {"function": "builtins.exec"},
        {"type": "torch.nn.Module", "config": {}},
        {"type": "torch.nn.Linear", "config": {"in_features": "x", "out_features": 1}},
        {"type": "torch.nn.Linear", "config": {"command": 1}},
        {"type": "torch.nn.Linear", "children": []},
        {"type": "torch.nn.Sequential", "config": {}},
        {
            "type": "torch.nn.Sequential",
            "children": [["a.b", {"type": "torch.nn.Tanh", "config": {}}]],
        },
        {
            "type": "torch.nn.Sequential",
            "children": [["forward", {"type": "torch.nn.Tanh", "config": {}}]],
        },
        {"type": "torch.nn.Sequential", "children": [3]},
        {"type": "torch.abs", "config": {"input": 1}},
        {},
        3,
        None,
    ],
    ids=str,
)
def test_only_known_modules_are_made(description):
    with pytest.raises(TopologyError):
        build_module(description, {})


def test_module_that_a_container_holds_twice_stays_one():
    layer = nn.Linear(2, 2)
    described = describe_module(nn.Sequential(layer, nn.ReLU(), layer), {}, lambda child: False)
    assert described["children"][2] == ["2", {"same": "0"}]
    made = build_module(described, {})
    assert made[2] is made[0]
    relu = {"type": "torch.nn.ReLU", "config": {}}
    for pairs in ([["0", {"same": "0"}]], [["0", relu], ["0", relu]], [["0", {"same": 3}]]):
        with pytest.raises(TopologyError):
            build_module({"type": "torch.nn.Sequential", "children": pairs}, {})
