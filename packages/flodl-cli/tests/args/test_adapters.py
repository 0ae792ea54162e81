import argparse
import json
from enum import Enum
from typing import Annotated

import pytest
import typer

from flodl_cli.args import add_fdl_schema, schema_from_argparse, schema_from_typer


class Color(Enum):
    RED = "red"
    BLUE = "blue"


def parser():
    made = argparse.ArgumentParser(description="Train")
    made.add_argument("run", nargs="?", help="Which")
    made.add_argument("-m", "--model", choices=["mlp", "all"], default="all", help="Model")
    made.add_argument("--epochs", type=int)
    made.add_argument("--fast", action="store_true")
    made.add_argument("--report", nargs="?", const="r.md")
    made.add_argument("--lr", type=float, nargs="+")
    made.add_argument("--tag", action="append")
    made.add_argument("-v", "--verbose", action="store_true")
    made.add_argument("-x")
    return made


def test_argparse_options_and_arguments():
    schema = schema_from_argparse(parser())
    types = {each.name: each.type for each in schema.options}
    assert types == {
        "model": "string", "epochs": "int", "fast": "bool", "report": "string",
        "lr": "list[float]", "tag": "list[string]", "verbose": "bool",
    }  # fmt: skip
    assert schema.option("model").short == "m"
    assert schema.option("verbose").short is None
    assert schema.option("report").bare == "r.md"
    assert (schema.args[0].name, schema.args[0].required) == ("run", False)


def test_argparse_commands_are_nested():
    made = argparse.ArgumentParser()
    made.add_subparsers().add_parser("train").add_argument("--lr", type=float)
    assert schema_from_argparse(made).commands["train"].option("lr").type == "float"


def test_argparse_parser_answers_for_its_schema(capsys):
    made = parser()
    add_fdl_schema(made)
    with pytest.raises(SystemExit) as ended:
        made.parse_args(["--fdl-schema"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["options"]["epochs"]["type"] == "int"


def test_typer_app():
    app = typer.Typer()

    @app.command()
    def train(
        source: str,
        more: Annotated[list[str] | None, typer.Argument()] = None,
        epochs: Annotated[int, typer.Option("--epochs", "-e", help="How long", envvar="E")] = 3,
        fast: Annotated[bool, typer.Option("--fast")] = False,
        tag: Annotated[list[str] | None, typer.Option("--tag")] = None,
        color: Color = Color.RED,
    ) -> None:
        """Train a model."""

    schema = schema_from_typer(app)
    assert schema.description == "Train a model."
    epochs = schema.option("epochs")
    assert (epochs.type, epochs.short, epochs.default, epochs.env) == ("int", "e", 3, "E")
    assert schema.option("fast").type == "bool"
    assert schema.option("color").choices == ("red", "blue")
    assert schema.option("color").default == "red"
    assert schema.option("tag").type == "list[string]"
    assert [(each.name, each.variadic) for each in schema.args] == [
        ("source", False),
        ("more", True),
    ]


def test_typer_commands_are_nested():
    app = typer.Typer()
    app.command("a")(lambda: None)
    app.command("b")(lambda: None)
    assert set(schema_from_typer(app).commands) == {"a", "b"}
