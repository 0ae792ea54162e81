import pytest
import torch
from torch import nn

from flodl import optim
from flodl.core.errors import ConfigError
from flodl.optim import capture_support, prepare_for_capture

CAPTURABLE = ("SGD", "Adam", "AdamW", "RMSprop", "RAdam", "NAdam", "CapturableAdagrad")


def test_the_cpu_has_no_capture():
    support = capture_support(optim.Adam(nn.Linear(2, 2)))
    assert not support.is_capturable
    assert "CUDA" in support.reason
    with pytest.raises(ConfigError, match="not all parameters are on a CUDA device"):
        prepare_for_capture(optim.Adam(nn.Linear(2, 2)))


@pytest.mark.cuda
@pytest.mark.parametrize("home", ["flodl", "torch"])
@pytest.mark.parametrize("name", CAPTURABLE)
def test_each_row_of_the_table_can_be_captured(name, home):
    kind = getattr(optim if home == "flodl" or name == "CapturableAdagrad" else torch.optim, name)
    optimizer = kind(nn.Linear(2, 2).cuda().parameters(), lr=0.1)
    support = capture_support(optimizer)
    assert support.is_capturable
    assert support.skips_on_device == (name in ("SGD", "Adam", "AdamW"))
    prepare_for_capture(optimizer)
    (group,) = optimizer.param_groups
    assert (group["lr"].dtype, group["lr"].shape) == (torch.float32, ())
    assert group["lr"].device.type == "cuda"


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (optim.Adagrad, "counts its steps on the host"),
        (lambda p: optim.SGD(p, foreach=True), "unless it is fused"),
        (torch.optim.LBFGS, "no setting 'capturable'"),
        (lambda p: optim.Adam(p, differentiable=True), "differentiable"),
    ],
    ids=["Adagrad", "foreach SGD", "LBFGS", "differentiable"],
)
def test_what_cannot_be_captured_says_why(make, reason):
    support = capture_support(make(nn.Linear(2, 2).cuda().parameters()))
    assert not support.is_capturable
    assert reason in support.reason
    assert support.hint


def train(optimizer, model, step):
    """Run 20 steps with a changing rate and clipping; return the parameters after each."""
    history = []
    for index in range(20):
        optimizer.param_groups[0]["lr"].fill_(0.1 / (index + 1))
        step(index)
        history.append([p.detach().clone() for p in model.parameters()])
    return history


@pytest.mark.cuda
@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.01}], ids=["plain", "decay"])
@pytest.mark.parametrize("name", CAPTURABLE)
def test_captured_steps_equal_eager_ones_bit_for_bit(name, settings):
    inputs = torch.randn(20, 8, 4, device="cuda")

    def build():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)).cuda()
        optimizer = getattr(optim, name)(model, lr=0.1, **settings)
        prepare_for_capture(optimizer)
        return model, optimizer

    def one_step(model, optimizer, x):
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    eager_model, eager = build()
    expected = train(eager, eager_model, lambda index: one_step(eager_model, eager, inputs[index]))

    model, optimizer = build()
    x = torch.empty_like(inputs[0])
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()

    def captured_step(index):
        stream.wait_stream(torch.cuda.current_stream())  # the rate was set on that one
        with torch.cuda.stream(stream):
            x.copy_(inputs[index])
            if index < 3:  # warm-up, as real steps
                one_step(model, optimizer, x)
            elif index == 3:
                optimizer.zero_grad(set_to_none=True)
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    one_step(model, optimizer, x)
        if index >= 3:
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()

    for step, (got, wanted) in enumerate(
        zip(train(optimizer, model, captured_step), expected, strict=True)
    ):
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True)), f"step {step}"
    for mine, other in zip(model.parameters(), eager_model.parameters(), strict=True):
        for key, value in eager.state[other].items():
            assert torch.equal(optimizer.state[mine][key], value), key


@pytest.mark.cuda
def test_state_that_exists_is_kept():
    model = nn.Linear(2, 2).cuda()
    optimizer = optim.RMSprop(model, lr=0.1)
    model(torch.ones(1, 2, device="cuda")).sum().backward()
    optimizer.step()
    prepare_for_capture(optimizer)
    step = optimizer.state[model.weight]["step"]
    assert step.device.type == "cuda"
    assert step == 1
