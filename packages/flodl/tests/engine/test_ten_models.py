"""The ten models of the speed suite: 200 captured steps equal 200 eager ones in every bit."""

import pytest
import torch
from torch import nn

from flodl.data import Batch
from flodl.engine.equality import verify_step
from flodl.engine.step import TrainStep
from flodl.graph import FlowBuilder
from flodl.nn import SoftmaxRouter
from flodl.nn import Unrolled as FusedSteps

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("exact_kernels")]


def dense(inner, outer):
    return [nn.Linear(inner, outer), nn.GELU(), nn.LayerNorm(outer)]


def block(width):
    return nn.Sequential(*dense(width, width))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = block(width)

    def forward(self, x):
        return x + self.net(x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(512, 8, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(512) for _ in range(2))
        self.inner = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))

    def forward(self, x):
        x = self.norms[0](x + self.attention(x, x, x)[0])
        return self.norms[1](x + self.inner(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8192, 512)
        self.position = nn.Parameter(torch.randn(1, 128, 512))
        self.layers = nn.Sequential(*[Encoder() for _ in range(4)])
        self.out = nn.Linear(512, 8192)

    def forward(self, x):
        return self.out(self.layers(self.embedding(x) + self.position))


class Unrolled(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(256, 512)
        self.out = nn.Linear(512, 256)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], 512)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return self.out(state)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(256, 512, 2, batch_first=True)
        self.out = nn.Linear(512, 256)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


def conv(inner, outer):
    return [nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU()]


def convnet():
    layers = []
    for inner, outer in ((3, 64), (64, 128), (128, 256), (256, 512)):
        layers += [*conv(inner, outer), nn.MaxPool2d(2)]
    tail = [*conv(512, 512), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100)]
    return nn.Sequential(*layers, *tail)


def autoencoder():
    layers = []
    for inner, outer in ((3, 64), (64, 128), (128, 256), (256, 512)):
        layers += [nn.Conv2d(inner, outer, 4, 2, 1), nn.BatchNorm2d(outer), nn.ReLU()]
    for inner, outer in ((512, 256), (256, 128), (128, 64)):
        layers += [nn.ConvTranspose2d(inner, outer, 4, 2, 1), nn.BatchNorm2d(outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())


def mlp():
    hidden = [layer for _ in range(3) for layer in dense(2048, 2048)]
    return nn.Sequential(*dense(1024, 2048), *hidden, nn.Linear(2048, 1024))


def tower():
    builder = FlowBuilder(nn.Linear(1024, 1024))
    for _ in range(12):
        builder = builder.also(block(1024))
    return builder.through(nn.Linear(1024, 1024)).build()


def gated(*, batched=False):
    builder = FlowBuilder(nn.Linear(512, 512)).through(nn.GELU())
    experts = [nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512)) for _ in range(8)]
    gate = builder.gate(SoftmaxRouter(512, 8), experts, batched=batched)
    return gate.through(nn.Linear(512, 512)).build()


def gru():
    return FlowBuilder(FusedSteps(nn.GRUCell(256, 512))).through(nn.Linear(512, 256)).build()


def looped(width, count):
    builder = FlowBuilder(block(width)).loop_body(Residual(width)).for_n(count)
    return builder.through(nn.Linear(width, width)).build()


def normal(*shape):
    return lambda: torch.randn(*shape, device="cuda")


def tokens():
    return torch.randint(0, 8192, (32, 128), device="cuda")


MODELS = {
    "mlp": (mlp, normal(256, 1024), normal(256, 1024)),
    "convnet": (convnet, normal(128, 3, 64, 64), normal(128, 100)),
    "gru_seq": (Unrolled, normal(128, 50, 256), normal(128, 256)),
    "transformer": (Transformer, tokens, tokens),
    "lstm_seq": (Lstm, normal(128, 50, 256), normal(128, 256)),
    "conv_autoenc": (autoencoder, normal(64, 3, 64, 64), normal(64, 3, 64, 64)),
    "residual_tower": (tower, normal(256, 1024), normal(256, 1024)),
    "gated_routing": (gated, normal(256, 512), normal(256, 512)),
    "iterative_refine": (lambda: looped(1024, 8), normal(256, 1024), normal(256, 1024)),
    "feedback_fixed": (lambda: looped(512, 10), normal(128, 512), normal(128, 512)),
    "gru_seq, fused": (gru, normal(128, 50, 256), normal(128, 256)),
    "gated_routing, batched": (lambda: gated(batched=True), normal(256, 512), normal(256, 512)),
}


def loss_of(model, batch):
    out = model(batch[0])
    if out.dim() == 3:
        return nn.functional.cross_entropy(out.flatten(0, 1), batch[1].flatten())
    return nn.functional.mse_loss(out, batch[1])


@pytest.mark.parametrize("name", MODELS)
def test_captured_training_equals_eager_training_in_every_bit(name):
    build, x, y = MODELS[name]
    torch.manual_seed(2)
    batches = [Batch([x(), y()]) for _ in range(10)]
    rate = 1e-4 if name == "transformer" else 1e-3

    def make(capture):
        model = build().cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        return TrainStep(loss_of, model, optimizer, capture=capture)

    report = verify_step(make, batches, 200)
    assert report.mode == "captured"
    report.assert_close()
    assert report.is_equal
