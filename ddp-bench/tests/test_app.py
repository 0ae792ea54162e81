import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ddp_bench import session
from ddp_bench.app import app
from ddp_bench.errors import RunFolderError
from ddp_bench.matrix import Request


@pytest.fixture
def invoke(monkeypatch):
    """Call the command line with a session that only notes what it was asked for."""
    asked = []

    class NotingSession:
        def __init__(self, request, *, as_json):
            asked.append((request, as_json))

        def run(self):
            return 0

    monkeypatch.setattr(session, "Session", NotingSession)

    def call(*arguments):
        asked.clear()
        result = CliRunner().invoke(app, arguments)
        return result, list(asked)

    return call


def test_flags_become_the_request(invoke):
    result, asked = invoke(
        "--model", "mlp,lenet", "--mode", "solo-0", "--epochs", "3", "--seed", "7", "--json",
        "--source", "mini", "--device", "cpu", "--output", "out", "--lr-scale", "0.5",
    )  # fmt: skip
    assert result.exit_code == 0
    request = Request(
        models="mlp,lenet",
        modes="solo-0",
        epochs=3,
        seed=7,
        source="mini",
        device="cpu",
        output=Path("out"),
        lr_scale=0.5,
    )
    assert asked == [(request, True)]


def test_flags_left_out_have_the_defaults_of_the_request(invoke):
    assert invoke("--model", "mlp")[1] == [(Request(models="mlp"), False)]


def test_autoscale_is_turned_off_by_its_flag(invoke):
    request = invoke("--model", "mlp", "--no-lr-autoscale")[1][0][0]
    assert request.lr_autoscale is False


def test_quick_runs_every_model_on_the_cpu(invoke):
    result, asked = invoke("quick", "--seed", "1", "--json")
    assert result.exit_code == 0
    request = Request(modes="solo-0", source="mini", device="cpu", seed=1)
    assert asked == [(request, True)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--epochs", "0"),
        ("--epochs", "many"),
        ("--seed", "-1"),
        ("--source", "fake"),
        ("--device", "tpu"),
        ("--no-such-flag",),
        ("train",),
        ("--list", "--model", "mlp"),
        ("--seed", "1", "quick"),
        ("--json", "list"),
    ],
)
def test_misuse_ends_with_code_2_and_runs_nothing(invoke, arguments):
    result, asked = invoke(*arguments)
    assert (result.exit_code, asked) == (2, [])
    assert result.stdout == ""
    assert result.stderr


def test_option_before_a_command_is_not_ignored(invoke):
    result, _ = invoke("--seed", "1", "quick")
    assert result.stderr == (
        "error: quick takes none of the options before it\n"
        "hint: put what it understands after it: ddp-bench quick --help\n"
    )


def test_no_arguments_show_the_help(invoke):
    result, asked = invoke()
    assert asked == []
    assert "quick" in result.output
    assert "--model" in result.output


@pytest.mark.parametrize("arguments", [("--list",), ("list",)])
def test_list_goes_to_stdout(invoke, arguments):
    result, asked = invoke(*arguments)
    assert (result.exit_code, result.stderr, asked) == (0, "", [])
    assert "logistic" in result.stdout
    assert "cpu-async" in result.stdout


@pytest.mark.parametrize("arguments", [("--list", "--json"), ("list", "--json")])
def test_list_as_json_is_one_document(invoke, arguments):
    document = json.loads(invoke(*arguments)[0].stdout)
    assert [model["name"] for model in document["models"]][:2] == ["logistic", "mlp"]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted: nothing was started\n"),
        (RunFolderError("the folder", hint="another"), 1, "error: the folder\nhint: another\n"),
        (OSError(28, "No space left on device"), 1, "error: [Errno 28] No space left on device\n"),
    ],
)
def test_error_is_one_message_and_an_exit_code(monkeypatch, error, code, message):
    def failing(*arguments, **options):
        raise error

    monkeypatch.setattr(session, "Session", failing)
    result = CliRunner().invoke(app, ["quick"])
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", message)
