"""The manifests of this repository."""

import re
from pathlib import Path

import pytest

from flodl_cli.config.check import check
from flodl_cli.config.resolve import resolve
from flodl_cli.config.tree import PathCommand, RunCommand

ROOT = Path(__file__).parents[4]
COMMANDS = {"test", "lint", "types", "docs", "gate", "cuda-test", "bench", "ddp-bench"}


@pytest.fixture(scope="module")
def commands():
    return resolve(str(ROOT / "fdl.yml")).level.commands


def test_manifests_are_sound(commands):
    assert check(str(ROOT)).problems == ()
    assert set(commands) >= COMMANDS
    assert all(command.description for command in commands.values())


def test_nox_sessions_that_commands_run_exist(commands):
    noxfile = (ROOT / "noxfile.py").read_text()
    lines = [command.run for command in commands.values() if isinstance(command, RunCommand)]
    sessions = [match[1] for line in lines if (match := re.match(r"nox -s (\w+)", line))]
    assert len(sessions) >= 6
    for session in sessions:
        assert f"\ndef {session}(" in noxfile


def test_ddp_bench_passes_its_words_to_the_program(commands):
    bench = commands["ddp-bench"]
    assert isinstance(bench, PathCommand)
    assert bench.level is not None
    assert bench.level.program is not None
    assert bench.level.program.entry == "python -m ddp_bench"
    assert bench.level.commands["quick"].program.args == ("quick",)
