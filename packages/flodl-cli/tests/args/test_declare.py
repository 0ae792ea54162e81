from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import pytest

from flodl_cli.args import arg, option, schema_of
from flodl_cli.errors import SchemaError


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Args:
    """Run the benchmark suite.

    More words.
    """

    model: Annotated[str, option(short="m", choices=["mlp", "all"], help="Model")] = "all"
    batch_size: int | None = None
    color: Color = Color.RED
    kind: Literal["a", "b"] = "a"
    fast: bool = False
    report: Annotated[str | None, option(bare="r.md")] = None
    key: Annotated[str | None, option(env="KEY")] = None
    lr: list[float] = field(default_factory=lambda: [0.1])
    data: Annotated[list[Path], arg(completer="ls")] = field(default_factory=list)


def test_fields_become_options_and_arguments():
    schema = schema_of(Args)
    assert schema.description == "Run the benchmark suite."
    assert [each.name for each in schema.options] == [
        "model", "batch-size", "color", "kind", "fast", "report", "key", "lr"
    ]  # fmt: skip
    types = {each.name: each.type for each in schema.options}
    assert (types["batch-size"], types["fast"], types["lr"]) == ("int", "bool", "list[float]")
    assert schema.option("color").choices == ("red", "blue")
    assert schema.option("color").default == "red"
    assert schema.option("kind").choices == ("a", "b")
    (data,) = schema.args
    assert (data.type, data.variadic, data.required) == ("list[path]", True, False)


@dataclass
class NoDefault:
    epochs: int


@dataclass
class SwitchedOn:
    fast: bool = True


@dataclass
class NoType:
    where: complex = 1j


@dataclass
class TwoTypes:
    where: int | str = 1


@dataclass
class Reserved:
    gpus: str = ""


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (NoDefault, "epochs: an option needs a default"),
        (SwitchedOn, "fast: a switch can only turn something on"),
        (NoType, "where: a command line cannot hold complex"),
        (TwoTypes, "where: a command line cannot hold"),
        (Reserved, "gpus: fdl has an option"),
        (int, "int is no dataclass"),
    ],
)
def test_impossible_fields_are_named(cls, said):
    with pytest.raises(SchemaError, match=said):
        schema_of(cls)


@dataclass
class Plain:
    source: Annotated[str, arg()]
    made: list[int] = field(default_factory=list, init=False)


def test_required_argument_and_fields_that_are_not_given():
    schema = schema_of(Plain)
    assert schema.args[0].required
    assert schema.options == ()
    assert schema.description == ""
