"""The model definitions by name: ours, and those that other packages register."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from ddp_bench.choice import split_names, unknown_name
from ddp_bench.definition import ModelDef
from ddp_bench.errors import RegistrationError
from ddp_bench.models.char_rnn import CHAR_RNN
from ddp_bench.models.conv_ae import CONV_AE
from ddp_bench.models.lenet import LENET
from ddp_bench.models.logistic import LOGISTIC
from ddp_bench.models.mlp import MLP

GROUP = "ddp_bench.models"
BUILT_IN = (LOGISTIC, MLP, LENET, CONV_AE, CHAR_RNN)


def load_models() -> dict[str, ModelDef]:
    """Return all model definitions by name: the built-in ones, then registered ones.

    Raises:
        RegistrationError: An entry point does not load, is no ``ModelDef``, or takes a name that
            is taken.
    """
    models = {definition.name: definition for definition in BUILT_IN}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        definition = _loaded(point)
        if definition.name in models:
            raise RegistrationError(
                f"{_place(point)} defines the model {definition.name!r}; "
                "a model of that name is there already",
                hint="give the definition another name, or uninstall that package",
            )
        models[definition.name] = definition
    return models


def choose_models(text: str, models: Mapping[str, ModelDef]) -> list[ModelDef]:
    """Return the definitions that a comma list, or ``all``, names.

    Raises:
        UsageError: A name is unknown.
    """
    names = split_names(text)
    if names == ["all"]:
        return list(models.values())
    for name in names:
        if name not in models:
            raise unknown_name("model", name, models)
    return [models[name] for name in names]


def _loaded(point: EntryPoint) -> ModelDef:
    try:
        definition = point.load()
    except Exception as error:
        raise RegistrationError(
            f"{_place(point)} does not load: {type(error).__name__}: {error}",
            hint="repair or uninstall the package that registers it",
        ) from error
    if not isinstance(definition, ModelDef):
        raise RegistrationError(
            f"{_place(point)} is a {type(definition).__name__}, "
            "not a ddp_bench.definition.ModelDef",
            hint="point it at a module-level ModelDef object",
        )
    return definition


def _place(point: EntryPoint) -> str:
    owner = "" if point.dist is None else f" of the package {point.dist.name}"
    return f"the entry point {point.name} = {point.value} in {GROUP}{owner}"
