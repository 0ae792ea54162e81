import sys

import pytest

from flodl.distributed.hostd.command import Command, CommandKind


def parsed(*words):
    return Command.parse(["python", *words])


@pytest.mark.parametrize(
    ("words", "kind", "target", "args", "options"),
    [
        (["train.py"], "script", "train.py", (), ()),
        (["train.py", "-m", "--lr", "1"], "script", "train.py", ("-m", "--lr", "1"), ()),
        (["-m", "pkg.train", "-x"], "module", "pkg.train", ("-x",), ()),
        (["-mpkg.train"], "module", "pkg.train", (), ()),
        (["-c", "print(1)", "a"], "code", "print(1)", ("a",), ()),
        (["-u", "-O", "train.py"], "script", "train.py", (), ("-u", "-O")),
        (["-uW", "error", "t.py"], "script", "t.py", (), ("-uW", "error")),
        (["-Xdev", "-X", "utf8", "t.py"], "script", "t.py", (), ("-X", "dev", "-X", "utf8")),
        (["-um", "pkg"], "module", "pkg", (), ("-u",)),
        (["-i", "t.py"], "script", "t.py", (), ()),
        (["-iu", "t.py"], "script", "t.py", (), ("-u",)),
        (
            ["--check-hash-based-pycs", "never", "t.py"],
            "script",
            "t.py",
            (),
            ("--check-hash-based-pycs", "never"),
        ),
    ],
)
def test_a_command_line_is_taken_apart_as_python_does(words, kind, target, args, options):
    command = parsed(*words)
    assert command == Command(kind=CommandKind(kind), target=target, args=args, options=options)


@pytest.mark.parametrize("words", [[], ["-"], ["-i"], ["-u"], ["-W", "error"]])
def test_a_prompt_and_a_program_on_standard_input_cannot_be_run_again(words):
    assert parsed(*words) is None


def test_the_words_of_a_command_mean_the_same_again():
    for words in (["-uW", "error", "-m", "pkg", "-x"], ["-O", "t.py", "1"], ["-c", "1", "2"]):
        command = parsed(*words)
        assert parsed(*command.words) == command


def test_this_very_process_is_understood():
    command = Command.parse(sys.orig_argv)
    assert command is not None
    assert command.args == tuple(sys.argv[1:])


def test_a_command_comes_back_from_its_message_and_anything_else_does_not():
    command = parsed("-u", "t.py", "a")
    assert Command.from_body(command.to_body()) == command
    for broken in ({}, {"kind": "script", "target": 1}, {**command.to_body(), "args": [1]}):
        with pytest.raises(ValueError, match="no command|no words"):
            Command.from_body(broken)
