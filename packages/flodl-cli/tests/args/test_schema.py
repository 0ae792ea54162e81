import pytest

from flodl_cli.args.schema import (
    Option,
    Positional,
    Schema,
    check_schema,
    schema_from_json,
    schema_to_json,
)
from flodl_cli.errors import SchemaError

JSON = {
    "description": "Train",
    "strict": False,
    "args": [{"name": "run-id", "type": "string", "description": "…", "required": False,
              "variadic": False, "default": None, "choices": [], "completer": "ls runs/"}],
    "options": {"model": {"type": "string", "short": "m", "description": "…", "default": "all",
                          "choices": ["mlp", "all"], "env": None, "completer": None}},
    "commands": {"train": {"options": {"lr": {"type": "float"}}}},
}  # fmt: skip


def test_documented_form_is_read_and_written():
    schema = schema_from_json(JSON)
    assert schema.option("model").choices == ("mlp", "all")
    assert schema.letter("m").name == "model"
    assert schema.args[0].completer == "ls runs/"
    assert schema.commands["train"].option("lr").type == "float"
    assert schema_from_json(schema_to_json(schema)) == schema


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (Schema(options=(Option("a", type="text"),)), "a: unknown type 'text'"),
        (Schema(options=(Option("gpus"),)), "gpus: fdl has an option --gpus"),
        (Schema(options=(Option("a"), Option("a"))), "a: there are two options --a"),
        (Schema(options=(Option("a", short="é"),)), "a: short 'é' is not one ASCII letter"),
        (Schema(options=(Option("a", short="v"),)), "a: fdl has an option -v"),
        (Schema(options=(Option("a", short="x"), Option("b", short="x"))), "b: there are two"),
        (Schema(options=(Option("a", default="c", choices=("b",)),)), "a: the default 'c'"),
        (Schema(args=(Positional("a", variadic=True), Positional("b"))), "a: only the last"),
        (Schema(args=(Positional("a", required=False), Positional("b"))), "b: a required"),
        (Schema(args=(Positional("a", default="x"),)), "a: a required argument needs no"),
        (Schema(args=(Positional("a"), Positional("a"))), "a: there are two arguments"),
        (Schema(commands={"t": Schema(options=(Option("env"),))}), "command t: env: fdl has"),
    ],
)
def test_contradictions_name_the_field(schema, said):
    with pytest.raises(SchemaError, match=said):
        check_schema(schema)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "a schema is a map"),
        ({"opts": {}}, "unknown key 'opts'"),
        ({"options": []}, "options must be a map"),
        ({"args": [{"type": "int"}]}, "args: an entry is a map with a name"),
        ({"options": {"a": {"typ": "int"}}}, "options.a: unknown key 'typ'"),
    ],
)
def test_other_data_is_no_schema(data, said):
    with pytest.raises(SchemaError, match=said):
        schema_from_json(data)
