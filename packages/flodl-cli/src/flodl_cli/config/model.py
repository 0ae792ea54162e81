"""The typed form of a manifest: every key it may hold, and nothing else."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from flodl_cli.names import BUILTIN_COMMANDS

_MODE = re.compile(
    r"solo-[1-9]\d*|(nccl-sync|nccl-cadence|cpu-sync|cpu-cadence|cpu-async|gloo-sync|gloo-cadence)"
    r"(-slowmo|-diloco)?"
)
_COMMAND_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_OPTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def _mode(text: str) -> str:
    if text.startswith("nccl-async"):
        raise ValueError(f"{text!r} does not exist: use cpu-async or nccl-cadence")
    if _MODE.fullmatch(text) is None:
        raise ValueError(
            f"unknown mode {text!r}: nccl-sync, nccl-cadence, cpu-sync, cpu-cadence, cpu-async, "
            "gloo-sync, gloo-cadence (each also with -slowmo or -diloco), or solo-N"
        )
    return text


def _command_name(text: str) -> str:
    if text in BUILTIN_COMMANDS:
        raise ValueError(f"{text!r} is a built-in command of fdl: choose another name")
    if _COMMAND_NAME.fullmatch(text) is None:
        raise ValueError(
            f"{text!r} is no command name: lower-case letters, digits, - and _, "
            "with a letter or digit first"
        )
    return text


def _option_name(text: str) -> str:
    if _OPTION_NAME.fullmatch(text) is None:
        raise ValueError(
            f"{text!r} is no option name: letters, digits, - and _, without dashes first"
        )
    return text


def _variable_name(text: str) -> str:
    if "=" in text:
        raise ValueError(f"{text!r} cannot name an environment variable: it holds =")
    return text


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


Scalar: TypeAlias = bool | int | float | str
OptionValue: TypeAlias = Scalar | list[Scalar]
Text: TypeAlias = Annotated[str, Field(min_length=1)]
EnvMap: TypeAlias = dict[Annotated[Text, AfterValidator(_variable_name)], str]
Options: TypeAlias = dict[Annotated[str, AfterValidator(_option_name)], OptionValue | None]


class SpeedHint(_Strict):
    """How much slower one rank is known to be."""

    slow_rank: Annotated[int, Field(ge=0)]
    ratio: Annotated[float, Field(gt=0)]


class DdpBlock(_Strict):
    """How ranks work together; ``null`` leaves a value to the program."""

    mode: Annotated[str, AfterValidator(_mode)] | None = None
    policy: Literal["sync", "cadence", "async"] | None = None
    backend: Literal["nccl", "cpu", "gloo"] | None = None
    anchor: int | Literal["auto"] | None = None
    max_anchor: int | None = None
    overhead_target: float | None = None
    divergence_threshold: float | None = None
    max_batch_diff: int | None = None
    max_grad_norm: float | None = None
    snapshot_timeout: int | None = None
    checkpoint_every: int | None = None
    progressive: bool | Literal["auto"] | None = None
    speed_hint: SpeedHint | None = None
    partition_ratios: list[float] | None = None
    lr_scale_ratio: float | None = None
    timeline: bool | None = None


class TrainingBlock(_Strict):
    """How long and how a program trains; ``null`` leaves a value to the program."""

    epochs: int | None = None
    batch_size: int | None = None
    batches_per_epoch: int | None = None
    lr: float | None = None
    seed: int | None = None


class OutputBlock(_Strict):
    """What a program writes and shows; ``null`` leaves a value to the program."""

    dir: str | None = None
    timeline: bool | None = None
    monitor: int | None = None


class _Settings(_Strict):
    """What a manifest and its commands have in common."""

    description: str | None = None
    entry: Text | None = None
    docker: Text | None = None
    ddp: DdpBlock | None = None
    training: TrainingBlock | None = None
    output: OutputBlock | None = None
    options: Options | None = None
    env: EnvMap | None = None


class CommandSpec(_Settings):
    """One command: a shell line, a way to another manifest, or a preset of this one."""

    run: Text | None = None
    append: Text | None = None
    path: Text | None = None
    cluster: bool | None = None
    args: list[str] | None = None


CommandName: TypeAlias = Annotated[str, AfterValidator(_command_name)]


class Manifest(_Settings):
    """A manifest; every level, from the project's root down, has this form."""

    inherit_from: Annotated[Text | None, Field(alias="inherit-from")] = None
    cluster: bool | dict[str, Any] | None = None
    commands: dict[CommandName, CommandSpec | None] | None = None
    arg_name: Annotated[Text, Field(alias="arg-name")] = "preset"
    entry_schema: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    probe: Literal["auto", "never", "always"] | None = None
    compile: bool | None = None
    schema_from: Annotated[str | None, Field(alias="schema-from", pattern=r"^[\w.]+:\w+$")] = None
    join: dict[str, Any] | None = None
    publish: dict[str, Any] | None = None
