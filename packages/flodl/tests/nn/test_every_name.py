"""Every public name of ``flodl.nn``: torch's own, or ours and used once in every way."""

import copy

import pytest
import torch
from torch import nn as torch_nn
from torch.nn import functional

import flodl.nn as nn

IMAGE = (2, 4, 8, 8)
SERIES = (2, 4, 8)
VOLUME = (2, 4, 6, 6, 6)
SEQUENCE = (2, 5, 4)
FLAT = (3, 4)


def of(shape):
    return lambda: (torch.randn(shape),)


def tokens():
    return (torch.randint(0, 10, (2, 5)),)


# Modules: how to build them, and what they take.
MODULES = {
    "Linear": (lambda: nn.Linear(4, 3), of(FLAT)),
    "Bilinear": (lambda: nn.Bilinear(4, 4, 2), lambda: (torch.randn(FLAT), torch.randn(FLAT))),
    "Identity": (nn.Identity, of(FLAT)),
    "Conv1d": (lambda: nn.Conv1d(4, 3, 3, stride=2, padding=1), of(SERIES)),
    "Conv2d": (lambda: nn.Conv2d(4, 4, 3, dilation=2, groups=2, bias=False), of(IMAGE)),
    "Conv3d": (lambda: nn.Conv3d(4, 2, 3), of(VOLUME)),
    "ConvTranspose1d": (
        lambda: nn.ConvTranspose1d(4, 3, 3, stride=2, output_padding=1),
        of(SERIES),
    ),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 3, 3), of(IMAGE)),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(4, 2, 2), of(VOLUME)),
    "MaxPool1d": (lambda: nn.MaxPool1d(2), of(SERIES)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), of(IMAGE)),
    "AvgPool1d": (lambda: nn.AvgPool1d(2), of(SERIES)),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), of(IMAGE)),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(3), of(IMAGE)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(3), of(IMAGE)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), of(IMAGE)),
    "PixelUnshuffle": (lambda: nn.PixelUnshuffle(2), of(IMAGE)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), of(IMAGE)),
    "Unfold": (lambda: nn.Unfold(3), of(IMAGE)),
    "Fold": (lambda: nn.Fold((4, 5), (2, 2)), of((2, 12, 12))),
    "ZeroPad2d": (lambda: nn.ZeroPad2d(1), of(IMAGE)),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(1), of(IMAGE)),
    "LayerNorm": (lambda: nn.LayerNorm(4), of(FLAT)),
    "RMSNorm": (lambda: nn.RMSNorm(4), of(FLAT)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), of(IMAGE)),
    "BatchNorm": (lambda: nn.BatchNorm(4), of(VOLUME)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), of(FLAT)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), of(IMAGE)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(4), of(VOLUME)),
    "InstanceNorm": (lambda: nn.InstanceNorm(4), of(SERIES)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(4, affine=True), of(SERIES)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), of(IMAGE)),
    "InstanceNorm3d": (lambda: nn.InstanceNorm3d(4, affine=True), of(VOLUME)),
    "Dropout": (lambda: nn.Dropout(0.5), of(FLAT)),
    "Dropout2d": (lambda: nn.Dropout2d(0.5), of(IMAGE)),
    "AlphaDropout": (lambda: nn.AlphaDropout(0.5), of(FLAT)),
    "Embedding": (lambda: nn.Embedding(10, 4, padding_idx=0), tokens),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(10, 4, mode="mean"), tokens),
    "GRUCell": (lambda: nn.GRUCell(4, 3), of(FLAT)),
    "GRU": (lambda: nn.GRU(4, 3, batch_first=True), of(SEQUENCE)),
    "LSTMCell": (lambda: nn.LSTMCell(4, 3), of(FLAT)),
    "LSTM": (lambda: nn.LSTM(4, 3, batch_first=True), of(SEQUENCE)),
    "First": (lambda: nn.First(nn.LSTM(4, 3, batch_first=True)), of(SEQUENCE)),
    "MultiheadAttention": (
        lambda: nn.MultiheadAttention(4, 2, batch_first=True),
        lambda: (torch.randn(SEQUENCE),) * 3,
    ),
    "SelfAttention": (lambda: nn.SelfAttention(4, 2, causal=True), of(SEQUENCE)),
    "GaussianBlur": (lambda: nn.GaussianBlur(0.8), of(IMAGE)),
    "ReLU": (nn.ReLU, of(FLAT)),
    "Sigmoid": (nn.Sigmoid, of(FLAT)),
    "Tanh": (nn.Tanh, of(FLAT)),
    "GELU": (nn.GELU, of(FLAT)),
    "SiLU": (nn.SiLU, of(FLAT)),
    "LeakyReLU": (nn.LeakyReLU, of(FLAT)),
    "ELU": (nn.ELU, of(FLAT)),
    "Softplus": (nn.Softplus, of(FLAT)),
    "Mish": (nn.Mish, of(FLAT)),
    "SELU": (nn.SELU, of(FLAT)),
    "Hardswish": (nn.Hardswish, of(FLAT)),
    "Hardsigmoid": (nn.Hardsigmoid, of(FLAT)),
    "PReLU": (nn.PReLU, of(FLAT)),
    "Softmax": (lambda: nn.Softmax(-1), of(FLAT)),
    "LogSoftmax": (lambda: nn.LogSoftmax(-1), of(FLAT)),
    "Flatten": (nn.Flatten, of(IMAGE)),
    "ModuleDict": (lambda: OneOf(nn.ModuleDict({"a": nn.Linear(4, 3)}), "a"), of(FLAT)),
    "ModuleList": (lambda: OneOf(nn.ModuleList([nn.Linear(4, 3)]), 0), of(FLAT)),
    "Sequential": (lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU()), of(FLAT)),
    "Module": (lambda: OneOf([nn.Linear(4, 3)], 0), of(FLAT)),
}


class OneOf(nn.Module):
    """Applies one module of a container."""

    def __init__(self, container, key):
        super().__init__()
        self.container = container if isinstance(container, nn.Module) else nn.ModuleList(container)
        self.key = key

    def forward(self, x):
        return self.container[self.key](x)


def classes():
    return torch.tensor([0, 2, 1])


def signs():
    return torch.tensor([1.0, -1.0, 1.0])


def ctc():
    return torch.randint(1, 4, (2, 3)), torch.tensor([6, 6]), torch.tensor([3, 3])


# Losses: the class, the function, torch's function, and what they take after the first input.
LOSSES = {
    "mse_loss": ("MSELoss", functional.mse_loss, of(FLAT), FLAT),
    "l1_loss": ("L1Loss", functional.l1_loss, of(FLAT), FLAT),
    "smooth_l1_loss": ("SmoothL1Loss", functional.smooth_l1_loss, of(FLAT), FLAT),
    "cross_entropy_loss": (
        "CrossEntropyLoss",
        functional.cross_entropy,
        lambda: (classes(),),
        FLAT,
    ),
    "nll_loss": ("NLLLoss", functional.nll_loss, lambda: (classes(),), FLAT),
    "ctc_loss": ("CTCLoss", functional.ctc_loss, ctc, (6, 2, 4)),
    "bce_loss": (
        "BCELoss",
        functional.binary_cross_entropy,
        lambda: (torch.rand(FLAT),),
        FLAT,
    ),
    "bce_with_logits_loss": (
        "BCEWithLogitsLoss",
        functional.binary_cross_entropy_with_logits,
        lambda: (torch.rand(FLAT),),
        FLAT,
    ),
    "kl_div_loss": (
        "KLDivLoss",
        lambda x, y: functional.kl_div(x, y, reduction="batchmean"),
        lambda: (torch.rand(FLAT),),
        FLAT,
    ),
    "triplet_margin_loss": (
        "TripletMarginLoss",
        functional.triplet_margin_loss,
        lambda: (torch.randn(FLAT), torch.randn(FLAT)),
        FLAT,
    ),
    "cosine_embedding_loss": (
        "CosineEmbeddingLoss",
        functional.cosine_embedding_loss,
        lambda: (torch.randn(FLAT), signs()),
        FLAT,
    ),
    "hinge_embedding_loss": (
        "HingeEmbeddingLoss",
        functional.hinge_embedding_loss,
        lambda: (signs(),),
        (3,),
    ),
    "margin_ranking_loss": (
        "MarginRankingLoss",
        functional.margin_ranking_loss,
        lambda: (torch.randn(3), signs()),
        (3,),
    ),
    "poisson_nll_loss": ("PoissonNLLLoss", functional.poisson_nll_loss, of(FLAT), FLAT),
}

# Names with a test file of their own.
ELSEWHERE = {
    "test_autocast.py": "AutocastGuard autocast is_autocast_enabled",
    "test_blur.py": "gaussian_blur_2d",
    "test_clip.py": "clip_grad_norm clip_grad_value",
    "test_focal.py": "FocalLoss focal_loss sigmoid_focal_loss",
    "test_freezing.py": "Parameter freeze frozen_names is_frozen unfreeze",
    "test_init.py": "init",
    "test_norm.py": "check_norm_stats",
    "test_precision.py": "GradScaler StepResult cast_parameters scaler_for",
    "schedulers/": """CosineScheduler CyclicLR ExponentialLR MultiStepLR OneCycleLR PlateauScheduler
        ScaledScheduler Scheduler SequentialScheduler StepDecay WarmupScheduler apply as_torch
        lr_table""",
    "../optim/": """Adagrad Adam AdamW CapturableAdagrad NAdam RAdam RMSprop SGD scale_lr
        set_group_lr set_lr""",
    "test_shaping.py": "Detach Lambda Reshape StateAdd",
    "test_routing.py": "ArgmaxSelector FixedSelector SigmoidRouter SoftmaxRouter",
    "test_halting.py": "LearnedHalt ThresholdHalt",
    "test_recurrent.py": "Unrolled",
    "test_protocols.py": """DetachableState HasGraph HasStructuralHash NamedInputModule
        Resettable""",
}


def test_every_name_has_a_case():
    elsewhere = {name for names in ELSEWHERE.values() for name in names.split()}
    loss_classes = {entry[0] for entry in LOSSES.values()}
    assert set(nn.__all__) == elsewhere | set(MODULES) | set(LOSSES) | loss_classes
    assert nn.__all__ == sorted(nn.__all__)


OURS = {"First", "SelfAttention", "GaussianBlur", "BatchNorm", "InstanceNorm"}


@pytest.mark.parametrize("name", sorted(set(MODULES) - OURS | {v[0] for v in LOSSES.values()}))
def test_what_torch_has_is_torchs(name):
    assert getattr(nn, name) is getattr(torch_nn, name)


def test_names_that_are_not_here_are_torchs():
    assert nn.Transformer is torch_nn.Transformer
    assert nn.functional is torch_nn.functional
    assert nn.utils is torch_nn.utils
    assert nn.Parameter is torch_nn.Parameter
    assert "Transformer" in dir(nn)
    with pytest.raises(AttributeError, match=r"neither flodl\.nn nor torch\.nn has 'Liner'"):
        nn.Liner  # noqa: B018 - the access is the test


def first(result):
    return first(result[0]) if isinstance(result, tuple) else result


def on(device, values):
    return tuple(value.to(device) for value in values)


@pytest.mark.parametrize("name", MODULES)
def test_each_module_runs_learns_copies_and_changes_dtype(name, device):
    build, inputs = MODULES[name]
    module, given = build().to(device), on(device, inputs())
    for value in given:
        value.requires_grad_(value.is_floating_point())
    result = first(module(*given))
    assert torch.isfinite(result).all()
    result.square().sum().backward()
    for parameter_name, parameter in module.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name
    for value in given:
        assert not value.is_floating_point() or torch.isfinite(value.grad).all()
    module.eval()
    expected = first(module(*given))
    other = build().to(device).eval()
    other.load_state_dict(module.state_dict())
    torch.testing.assert_close(first(other(*given)), expected, rtol=0, atol=0)
    torch.testing.assert_close(first(copy.deepcopy(module)(*given)), expected, rtol=0, atol=0)
    double = module.to(torch.float64)
    wide = first(double(*(v.double() if v.is_floating_point() else v for v in given)))
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide, expected.double(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_is_torchs_scalar_in_both_forms(name, device):
    class_name, torchs, rest, shape = LOSSES[name]
    raw = torch.randn(shape, device=device, requires_grad=True)
    if name == "bce_loss":
        prepared = torch.sigmoid(raw)
    elif name in ("nll_loss", "kl_div_loss", "ctc_loss"):
        prepared = torch.log_softmax(raw, dim=-1)
    else:
        prepared = raw
    given = (prepared, *on(device, rest()))
    loss = getattr(nn, name)(*given)
    assert loss.shape == ()
    torch.testing.assert_close(loss, torchs(*given), rtol=0, atol=0)
    settings = {"reduction": "batchmean"} if name == "kl_div_loss" else {}
    torch.testing.assert_close(getattr(nn, class_name)(**settings)(*given), loss)
    loss.backward()
    assert torch.isfinite(raw.grad).all()


def test_losses_take_torchs_keyword_arguments():
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    assert nn.mse_loss(x, y, reduction="none").shape == (3, 4)
    smooth = nn.cross_entropy_loss(x, torch.tensor([0, -100, 1]), label_smoothing=0.1)
    assert torch.isfinite(smooth)
    assert nn.cross_entropy_loss(x, torch.softmax(y, 1)).shape == ()
    assert nn.smooth_l1_loss(x, y, 0.5, reduction="sum") > nn.smooth_l1_loss(x, y, 0.5)
    assert nn.kl_div_loss(x, y, reduction="sum", log_target=True).shape == ()
    assert nn.ctc_loss.flodl_dynamic


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan")])
def test_smooth_l1_needs_a_positive_beta(beta):
    with pytest.raises(ValueError, match="must be positive"):
        nn.smooth_l1_loss(torch.zeros(1), torch.zeros(1), beta)


def test_both_forms_of_gelu_are_pinned():
    x = torch.tensor([-2.0, -0.5, 0.0, 1.0, 3.0], dtype=torch.float64)
    exact = [-0.04550026389635842, -0.15426876936299344, 0.0, 0.8413447460685429, 2.99595030590511]
    tanh = [-0.04540230591222494, -0.15428599017485606, 0.0, 0.8411919906082768, 2.996362607918227]
    for form, values in (("none", exact), ("tanh", tanh)):
        expected = torch.tensor(values, dtype=torch.float64)
        result = nn.GELU(approximate=form)(x)
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-14)


COMPILED = ["Linear", "SelfAttention", "BatchNorm", "GaussianBlur", "First"]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns about itself
def test_compiled_modules_give_the_same_numbers(name, device, monkeypatch):
    import torch._inductor.config

    # The compiler sets this variable; so it is unset again afterwards.
    monkeypatch.setenv("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", "")
    monkeypatch.delenv("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR")
    build, inputs = MODULES[name]
    module, given = build().to(device).eval(), on(device, inputs())
    compiled = torch.compile(module, fullgraph=name != "First")
    with torch._inductor.config.patch(compile_threads=1):  # the threads of a pool would stay
        result = first(compiled(*given))
    torch.testing.assert_close(result, first(module(*given)), rtol=1e-4, atol=1e-5)
