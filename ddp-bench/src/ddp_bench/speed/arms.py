"""The arms of the suite: what is measured beside what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ddp_bench.errors import UsageError
from ddp_bench.speed.rewrites import COMPILABLE, REWRITTEN

Side = Literal["torch", "hand", "flodl", "trial"]
Device = Literal["cpu", "cuda"]
Policy = Literal["step", "epoch"]
Clock = Literal["wall", "cpu"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One way to train the same model on the same batches.

    Attributes:
        name: What reports call it.
        side: Who is measured: torch as anybody uses it, a capture by hand (what flodl's own cost
            is measured against), flodl, or a trial of what could be.
        text: One line about it.
        devices: Where it runs.
        is_compiled: Whether kernels come from a compiler: losses then agree less exactly.
        is_captured: Whether the whole step must run as one graph.
        is_default: Whether it runs unless others are asked for.
        models: Names of the models that it is for; all when empty.
    """

    name: str
    side: Side
    text: str
    devices: tuple[Device, ...] = ("cpu", "cuda")
    is_compiled: bool = False
    is_captured: bool = False
    is_default: bool = True
    models: tuple[str, ...] = ()


_GPU: tuple[Device, ...] = ("cuda",)

ARMS: tuple[Arm, ...] = (
    Arm(name="torch-eager", side="torch", text="plain loop, Adam as torch defaults it"),
    Arm(name="torch-fused", side="torch", text="plain loop, Adam(fused=True)"),
    Arm(
        name="torch-compile",
        side="torch",
        text="torch.compile of forward and loss, fused Adam",
        is_compiled=True,
    ),
    Arm(
        name="torch-compile-ro",
        side="torch",
        text='the same with mode="reduce-overhead"',
        devices=_GPU,
        is_compiled=True,
    ),
    Arm(
        name="torch-compile-max",
        side="torch",
        text='the same with mode="max-autotune"',
        devices=_GPU,
        is_compiled=True,
        is_default=False,
    ),
    Arm(name="lightning", side="torch", text="PyTorch Lightning Trainer, fused Adam"),
    Arm(
        name="torch-manual-graph",
        side="hand",
        text="whole step captured by hand in plain torch, fused Adam",
        devices=_GPU,
        is_captured=True,
    ),
    Arm(
        name="torch-manual-compiled",
        side="hand",
        text="captured by hand over compiled kernels",
        devices=_GPU,
        is_compiled=True,
        is_captured=True,
    ),
    Arm(name="flodl-graph", side="flodl", text="FlowBuilder model in the plain loop, eager"),
    Arm(name="flodl-trainer", side="flodl", text="Trainer with capture off"),
    Arm(
        name="flodl-compiled",
        side="flodl",
        text="Trainer with compile=True",
        devices=("cpu",),
        is_compiled=True,
    ),
    Arm(
        name="flodl-step",
        side="flodl",
        text="TrainStep in the user's own loop, captured",
        devices=_GPU,
        is_captured=True,
    ),
    Arm(
        name="flodl-captured",
        side="flodl",
        text="Trainer with default settings: the step captured",
        devices=_GPU,
        is_captured=True,
    ),
    Arm(
        name="flodl-captured-compiled",
        side="flodl",
        text="Trainer with compile=True: captured over compiled kernels",
        devices=_GPU,
        is_compiled=True,
        is_captured=True,
    ),
    Arm(
        name="flodl-rewritten",
        side="trial",
        text="Trainer with default settings, the model rewritten for fewer kernels",
        is_captured=True,
        is_default=False,
        models=REWRITTEN,
    ),
    Arm(
        name="flodl-rewritten-compiled",
        side="trial",
        text="the same with compile=True",
        is_compiled=True,
        is_captured=True,
        is_default=False,
        models=COMPILABLE,
    ),
)
BY_NAME = {arm.name: arm for arm in ARMS}


def choose(device: Device, names: Sequence[str] = (), also: Sequence[str] = ()) -> tuple[Arm, ...]:
    """Return the arms of these names, or the default ones of a device, in the suite's order.

    Args:
        device: Where they are to run.
        names: Their names; the default ones when empty.
        also: Names of further arms.

    Raises:
        UsageError: A name is unknown, or its arm does not run there.
    """
    for name in (*names, *also):
        if name not in BY_NAME:
            raise UsageError(f"--arms {name!r}: there are {', '.join(BY_NAME)}")
        if device not in BY_NAME[name].devices:
            where = "on a GPU" if device == "cpu" else "on the CPU"
            raise UsageError(f"--arms {name!r}: this arm runs {where} only")
    defaults = [arm.name for arm in ARMS if device in arm.devices and arm.is_default]
    chosen = {*(names or defaults), *also}
    return tuple(arm for arm in ARMS if arm.name in chosen)
