from pathlib import Path

import pytest

from flodl_cli.args.parser import parse_words
from flodl_cli.args.schema import Option, Positional, Schema
from flodl_cli.errors import UsageError

SCHEMA = Schema(
    options=(
        Option("model", short="m", default="all", choices=("mlp", "all")),
        Option("epochs", type="int", short="e", env="EPOCHS"),
        Option("fast", type="bool", short="f", env="FAST"),
        Option("loud", type="bool", short="l"),
        Option("report", bare="runs/report.md"),
        Option("lr", type="list[float]"),
    ),
    args=(Positional("first", required=False), Positional("rest", "list[path]", required=False,
                                                          variadic=True)),
)  # fmt: skip


def read(*words, **environ):
    return parse_words(SCHEMA, words, environ)


@pytest.mark.parametrize(
    "words", [("--epochs", "3"), ("--epochs=3",), ("-e", "3"), ("-e=3",), ("-fe", "3")]
)
def test_value_has_five_spellings(words):
    assert read(*words)["epochs"] == 3


def test_defaults():
    assert read() == {
        "model": "all", "epochs": None, "fast": False, "loud": False, "report": None, "lr": [],
        "first": None, "rest": [],
    }  # fmt: skip


def test_last_scalar_wins_and_lists_gather():
    assert read("-e", "1", "-e", "2")["epochs"] == 2
    assert read("--lr", "1,2", "--lr=3")["lr"] == [1.0, 2.0, 3.0]


def test_clusters_hold_switches_and_one_value_at_the_end():
    values = read("-flm", "mlp")
    assert (values["fast"], values["loud"], values["model"]) == (True, True, "mlp")
    with pytest.raises(UsageError, match="-m takes a value, and only the last one may"):
        read("-mf", "x")
    with pytest.raises(UsageError, match="unknown option -z in -fz"):
        read("-fz")


def test_separator_dash_and_negative_numbers():
    assert read("--", "--epochs")["first"] == "--epochs"
    assert read("-")["first"] == "-"
    assert read("--epochs", "-3")["epochs"] == -3
    assert read("-5")["first"] == "-5"
    assert read("--lr", "-.5")["lr"] == [-0.5]


def test_bare_value_only_where_declared():
    assert read("--report")["report"] == "runs/report.md"
    assert read("--report", "x")["report"] == "x"
    assert read("--report", "--fast")["report"] == "runs/report.md"
    with pytest.raises(UsageError, match="--epochs needs a value"):
        read("--epochs", "--fast")


def test_arguments_fill_in_order_and_the_last_takes_the_rest():
    values = read("a", "b", "c,d")
    assert values["first"] == "a"
    assert values["rest"] == [Path("b"), Path("c"), Path("d")]


def test_variable_stands_between_words_and_default():
    assert read(EPOCHS="4")["epochs"] == 4
    assert read("-e", "1", EPOCHS="4")["epochs"] == 1
    assert read(EPOCHS="")["epochs"] is None
    assert read(FAST="yes")["fast"] is True
    assert read(FAST="0")["fast"] is False
    with pytest.raises(UsageError, match=r"\$FAST 'maybe' is neither"):
        read(FAST="maybe")
    with pytest.raises(UsageError, match=r"\$EPOCHS 'x' is not a whole number"):
        read(EPOCHS="x")


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (("--epohcs", "3"), "unknown option --epohcs", "did you mean --epochs?"),
        (("--model", "mpl"), "--model 'mpl' is none of: mlp, all", "did you mean mlp?"),
        (("-e", "3.5"), "-e '3.5' is not a whole number", None),
        (("--fast=yes",), "--fast is a switch and takes no value", None),
        (("--zzz",), "unknown option --zzz", None),
    ],
)
def test_misuse_says_what_is_wrong(words, said, hint):
    with pytest.raises(UsageError) as failed:
        read(*words)
    assert failed.value.message.startswith(said)
    assert failed.value.hint == hint


def test_too_many_and_too_few_arguments():
    schema = Schema(args=(Positional("source"),))
    with pytest.raises(UsageError, match="the argument source is missing"):
        parse_words(schema, [], {})
    with pytest.raises(UsageError, match="unexpected argument 'b'"):
        parse_words(schema, ["a", "b"], {})
