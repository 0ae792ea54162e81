"""How modules were constructed: a class from a fixed list, and its arguments as JSON values.

Reading never imports by name: a name is looked up among torch.nn's modules, flodl's own, and
what users registered.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from flodl import nn as ours
from flodl.core.errors import TopologyError
from flodl.nn import Lambda

T = TypeVar("T", bound=Callable[..., Any])
Registry = Mapping[str, Callable[..., Any]]

_CONTAINERS: dict[str, type[nn.Module]] = {
    "torch.nn.Sequential": nn.Sequential,
    "torch.nn.ModuleList": nn.ModuleList,
    "torch.nn.ModuleDict": nn.ModuleDict,
}
_TORCH = {
    f"torch.nn.{name}": kind
    for name, kind in vars(nn).items()
    if inspect.isclass(kind) and issubclass(kind, nn.Module) and kind is not nn.Module
}
_OURS = {
    f"flodl.{name}": getattr(ours, name)
    for name in (
        "ArgmaxSelector",
        "Detach",
        "FixedSelector",
        "LearnedHalt",
        "Reshape",
        "SigmoidRouter",
        "SoftmaxRouter",
        "StateAdd",
        "ThresholdHalt",
    )
}
_ELEMENTWISE = (
    "abs cos erf exp expm1 log log1p logit neg reciprocal relu rsqrt selu sigmoid sign sin sqrt "
    "square tan tanh"
).split()
_ACTIVATIONS = "gelu silu elu celu leaky_relu relu6 hardswish hardsigmoid mish softplus".split()
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"torch.{name}": getattr(torch, name) for name in _ELEMENTWISE
} | {f"torch.nn.functional.{name}": getattr(nn.functional, name) for name in _ACTIVATIONS}

_registered: dict[str, Callable[..., Any]] = {}

# Arguments that torch keeps under another name than the constructor's.
_ARGUMENTS: dict[tuple[type[nn.Module], str], Callable[[Any], Any]] = {
    (nn.MultiheadAttention, "bias"): lambda module: module.in_proj_bias is not None,
    (nn.MultiheadAttention, "add_bias_kv"): lambda module: module.bias_k is not None,
}


# Constructors of recurrent layers take their arguments unnamed.
_RECURRENT = "input_size hidden_size num_layers bias batch_first dropout bidirectional".split()
_UNNAMED: dict[type[nn.Module], list[str]] = {
    nn.LSTM: [*_RECURRENT, "proj_size"],
    nn.GRU: _RECURRENT,
    nn.RNN: [*_RECURRENT, "nonlinearity"],
}


def register_module(name: str) -> Callable[[T], T]:
    """Make a class of modules, or a function used as a step, known to topology files.

    How an instance was constructed is asked of its ``get_config()``, else read from attributes
    named like the arguments of its constructor; ``from_config(config)``, or the constructor with
    these arguments, makes it again.

    Args:
        name: What files call it; keep it when the class moves.

    Raises:
        TopologyError: The name is taken by another class.
    """

    def register(kind: T) -> T:
        known = {**_TORCH, **_OURS, **_FUNCTIONS}
        if name in known or _registered.get(name, kind) is not kind:
            raise TopologyError(
                f"register_module({name!r}): that name is taken", hint="choose another"
            )
        _registered[name] = kind
        return kind

    return register


def describe_module(
    module: nn.Module, registry: Registry, skip: Callable[[nn.Module], bool]
) -> dict[str, Any]:
    """Return type and arguments of a module as JSON values.

    Args:
        module: What to describe.
        registry: Further classes and functions by name.
        skip: Which children do not belong to it.

    Raises:
        TopologyError: Its class is not known, or does not tell its arguments.
    """
    names = {id(kind): name for name, kind in _known(registry).items()}
    if isinstance(module, Lambda):
        name = names.get(id(module.fn))
        if name is None:
            raise TopologyError(f"function {module.flodl_name!r}")
        return {"function": name}
    name = names.get(id(type(module)))
    if name is None:
        raise TopologyError(type(module).__name__)
    if name in _CONTAINERS:
        children = _children_of(module, registry, skip)
        return {"type": name, "children": list(map(list, children.items()))}
    config = _config_of(module)
    if name in _TORCH:
        _check_config(module, config, skip)
    return {"type": name, "config": config}


def build_module(description: Any, registry: Registry) -> nn.Module:
    """Return a new module from its description.

    Raises:
        TopologyError: The class is not known, or does not take these arguments.
    """
    match description:
        case {"function": str(name)} if len(description) == 1:
            function = _lookup(name, registry)
            if isinstance(function, type):
                raise TopologyError(f"{name!r} is no function")
            return Lambda(function)
        case {"type": str(name), "children": list(pairs)} if name in _CONTAINERS:
            children: dict[str, nn.Module] = {}
            for pair in pairs:
                key, child = _build_child(pair, registry, children)
                if key in children:
                    raise TopologyError(f"{name}: {key!r} stands in it twice")
                children[key] = child
            return _container(name, children)
        case {"type": str(name), "config": dict(config)} if name not in _CONTAINERS:
            return _construct(name, _lookup(name, registry), config)
    raise TopologyError(f"{str(description)[:80]} describes no module")


def _known(registry: Registry) -> dict[str, Callable[..., Any]]:
    return {**_TORCH, **_OURS, **_FUNCTIONS, **_registered, **registry}


def _lookup(name: str, registry: Registry) -> Callable[..., Any]:
    known = _known(registry)
    if name not in known:
        raise TopologyError(
            f"class {name!r} is not known",
            hint="import what defines it, with @register_module, or pass registry={name: class}",
        )
    return known[name]


def _config_of(module: nn.Module) -> dict[str, Any]:
    asked = getattr(module, "get_config", None)
    if asked is not None:
        config: dict[str, Any] = dict(asked())
    elif type(module) in _UNNAMED:
        config = {name: getattr(module, name) for name in _UNNAMED[type(module)]}
    else:
        config = {parameter.name: _argument(module, parameter) for parameter in _parameters(module)}
    return {name: _plain(value, type(module).__name__) for name, value in config.items()}


def _parameters(module: nn.Module) -> list[inspect.Parameter]:
    """Return the arguments that matter; torch's own classes ignore what they take unnamed."""
    kind = type(module)
    if kind.__init__ is nn.Module.__init__:
        return []
    variadic = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    is_torch = kind in _TORCH.values()
    return [
        parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if name not in {"device", "dtype"}
        and not name.startswith("_")
        and not (is_torch and parameter.kind in variadic)
    ]


def _argument(module: nn.Module, parameter: inspect.Parameter) -> Any:
    special = _ARGUMENTS.get((type(module), parameter.name))
    if special is not None:
        return special(module)
    missing = object()
    value = getattr(module, parameter.name, missing)
    variadic = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    if value is missing or parameter.kind in variadic:
        raise TopologyError(
            f"{type(module).__name__} (no attribute {parameter.name!r}: give it get_config())"
        )
    if isinstance(parameter.default, bool) and (value is None or isinstance(value, torch.Tensor)):
        return value is not None  # bias=True is kept as the bias itself
    return value


def _plain(value: Any, owner: str) -> Any:
    """Return a value as JSON has it; tuples become lists."""
    if isinstance(value, tuple | list):
        return [_plain(item, owner) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item, owner) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise TopologyError(f"{owner} (an argument is {type(value).__name__}: give it get_config())")


def _check_config(
    module: nn.Module, config: dict[str, Any], skip: Callable[[nn.Module], bool]
) -> None:
    """Refuse a configuration that would make tensors of other shapes."""
    with torch.device("meta"):
        again = _construct(type(module).__name__, type(module), config)
    others = [f"{name}." for name, child in module.named_children() if skip(child)]
    own = {
        name: tuple(value.shape)
        for name, value in module.state_dict().items()
        if not name.startswith(tuple(others))
    }
    if own != {name: tuple(value.shape) for name, value in again.state_dict().items()}:
        raise TopologyError(f"{type(module).__name__} (changed since it was constructed)")


def _construct(name: str, kind: Callable[..., Any], config: dict[str, Any]) -> nn.Module:
    arguments = {key: _tuples(value) for key, value in config.items()}
    maker = getattr(kind, "from_config", None)
    try:
        module = maker(arguments) if maker is not None else kind(**arguments)
    except Exception as error:
        raise TopologyError(f"{name} cannot be made from {config}: {error}") from error
    if not isinstance(module, nn.Module):
        raise TopologyError(f"{name} made {type(module).__name__}, which is no module")
    return module


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {k: _tuples(v) for k, v in value.items()} if isinstance(value, dict) else value


def _children_of(
    module: nn.Module, registry: Registry, skip: Callable[[nn.Module], bool]
) -> dict[str, dict[str, Any]]:
    """Describe what a container holds; a module that it holds twice is named by its first key."""
    first: dict[int, str] = {}
    result: dict[str, dict[str, Any]] = {}
    for key, child in module.named_modules(remove_duplicate=False):
        if not key or "." in key or skip(child):
            continue
        known = first.setdefault(id(child), key)
        result[key] = describe_module(child, registry, skip) if known == key else {"same": known}
    return result


def _build_child(
    pair: Any, registry: Registry, made: Mapping[str, nn.Module]
) -> tuple[str, nn.Module]:
    match pair:
        case [str(name), {"same": str(first)}] if first in made:
            return name, made[first]
        case [str(name), description]:
            return name, build_module(description, registry)
    raise TopologyError(f"{str(pair)[:80]} is no pair of name and module")


def _container(name: str, children: Mapping[str, nn.Module]) -> nn.Module:
    container = _CONTAINERS[name]()
    for key, child in children.items():
        if not key or "." in key or hasattr(container, key):
            raise TopologyError(f"{name}: {key!r} is no name of a child")
        container.add_module(key, child)
    return container
