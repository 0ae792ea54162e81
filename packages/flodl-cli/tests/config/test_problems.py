import pytest
from pydantic import ValidationError

from flodl_cli.config.load import load
from flodl_cli.config.model import Manifest
from flodl_cli.config.problems import problems


def found(tmp_path, text):
    file = tmp_path / "fdl.yml"
    file.write_text(text)
    document = load(file)
    with pytest.raises(ValidationError) as caught:
        Manifest.model_validate(document.data)
    return [
        (each.line, each.key_path, each.message, each.hint)
        for each in problems(document, caught.value)
    ]


def one(tmp_path, text):
    (only,) = found(tmp_path, text)
    return only


def test_unknown_key_lists_legal_ones_and_a_near_one(tmp_path):
    line, path, message, hint = one(tmp_path, "commands:\n  t:\n    rnu: x\n")
    assert (line, path) == (3, "commands.t.rnu")
    assert message.startswith("unknown key 'rnu'; keys here: description, entry, docker, ddp, ")
    assert hint == "did you mean run?"


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("inherit_from: x\n", "inherit_from", "did you mean inherit-from?"),
        ("command: {}\n", "command", "did you mean commands?"),
        ("training: {epoch: 1}\n", "training.epoch", "did you mean epochs?"),
        ("ddp: {speed_hint: {slow_rank: 0, ratio: 2, x: 1}}\n", "ddp.speed_hint.x", None),
        ("commands: {ddp: {rn: x}}\n", "commands.ddp.rn", "did you mean run?"),
        ("commands: {t: {output: {dri: x}}}\n", "commands.t.output.dri", "did you mean dir?"),
    ],
)
def test_unknown_key_is_compared_with_the_keys_of_its_block(tmp_path, text, key, hint):
    _, path, _, said = one(tmp_path, text)
    assert (path, said) == (key, hint)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("description: 3\n", "must be text, not 3", 'quote it: "3"'),
        ("env: {A: true}\n", "must be text, not true", 'quote it: "true"'),
        ("commands: [a]\n", "must be a map, not a list", None),
        ("commands: {t: pytest}\n", "must be a map, not 'pytest'", "{ run: 'pytest' }"),
        ("training: {epochs: 1.5}\n", "must be a whole number, not 1.5", None),
        ("training: {lr: fast}\n", "must be a number, not 'fast'", None),
        ("ddp: {anchor: soon}\n", "must be a whole number or 'auto', not 'soon'", None),
        ("ddp: {progressive: 1}\n", "must be true or false or 'auto', not 1", None),
        ("cluster: x\n", "must be true or false or a map, not 'x'", None),
        ("options: {a: {b: 1}}\n", "must be true or false or a whole number or", None),
        ("options: {a: [1, [2]]}\n", "must be true or false or a whole number or", None),
        ("entry: ''\n", "must not be empty", None),
        ("env: {A=B: x}\n", "'A=B' cannot name an environment variable", None),
        ("ddp: {speed_hint: {slow_rank: 0}}\n", "the key 'ratio' is missing", None),
        ("ddp: {speed_hint: {slow_rank: -1, ratio: 2}}\n", "must be greater than or equal", None),
        ("training: {lr: .inf}\n", "must be a finite number", None),
        ("schema-from: x\n", "must have the form package.module:Class, not 'x'", None),
        ("commands: {config: {run: x}}\n", "'config' is a built-in command of fdl", None),
        ("commands: {Test: {run: x}}\n", "'Test' is no command name", None),
        ("commands: {-t: {run: x}}\n", "'-t' is no command name", None),
        ("options: {--a: 1}\n", "'--a' is no option name", None),
        ("ddp: {mode: nccl-async}\n", "'nccl-async' does not exist: use cpu-async or", None),
        ("ddp: {mode: fast}\n", "unknown mode 'fast': nccl-sync, ", None),
    ],
)
def test_wrong_value_says_what_it_must_be(tmp_path, text, message, hint):
    _, _, said, hinted = one(tmp_path, text)
    assert said.startswith(message)
    assert hint is None or (hinted is not None and hint in hinted)


@pytest.mark.parametrize("mode", ["nccl-sync", "cpu-async-diloco", "gloo-cadence-slowmo", "solo-2"])
def test_modes_of_the_trainer_are_legal(mode):
    Manifest.model_validate({"ddp": {"mode": mode}})


@pytest.mark.parametrize("mode", ["solo-0", "solo-x", "cpu-sync-fast", "CPU-SYNC", "sync"])
def test_other_modes_are_not(tmp_path, mode):
    assert one(tmp_path, f"ddp: {{mode: {mode}}}\n")[2].startswith(f"unknown mode {mode!r}")


def test_all_faults_are_reported_in_the_order_of_their_lines(tmp_path):
    lines = [
        line
        for line, *_ in found(
            tmp_path, "a: 1\ndescription: 2\ncommands:\n  t: {run: 3, b: 1}\nentry: 4\n"
        )
    ]
    assert lines == [1, 2, 4, 4, 5]


def test_number_that_is_not_finite_is_one_problem(tmp_path):
    assert one(tmp_path, "options: {f: .inf}\n")[1:3] == (
        "options.f",
        "must be a finite number, not inf",
    )
