from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ddp_bench.errors import BenchError
from ddp_bench.scaling import __main__ as command
from ddp_bench.scaling.suite import SuiteConfig, SuiteResult


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, result: SuiteResult) -> list[SuiteConfig]:
    """What the command asked the suite for; the suite answers with a made-up result."""
    configs: list[SuiteConfig] = []

    def run(config: SuiteConfig, say: Callable[[str], None]) -> SuiteResult:
        configs.append(config)
        return result

    monkeypatch.setattr(command, "run", run)
    return configs


def test_the_short_run_has_three_seeds_and_the_full_one_five(asked: list[SuiteConfig]) -> None:
    assert command.main(["--ci"]) == 0
    assert command.main([]) == 0
    assert command.main(["--seeds", "2", "--arms", "torch-ddp,cpu-sync", "--periods", "8"]) == 0
    short, full, chosen = asked
    assert (short.ci, short.seeds) == (True, (42, 43, 44))
    assert (full.ci, full.seeds) == (False, (42, 43, 44, 45, 46))
    assert (chosen.seeds, chosen.arms, chosen.periods) == (
        (42, 43),
        ("torch-ddp", "cpu-sync"),
        (8,),
    )


def test_a_missed_bar_is_an_exit_code_under_the_gate_only(
    asked: list[SuiteConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "scaling.json"
    assert command.main(["--json", "--output", str(written)]) == 0
    text = capsys.readouterr().out
    assert written.read_text() == text
    assert json.loads(text)["passed"] is False
    assert command.main(["--gate"]) == 1
    assert "**missed**" in capsys.readouterr().out
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--scenarios", "slwo"], "scenario 'slwo'"),
        (["--arms", "torch-dpd"], "arm 'torch-dpd'"),
        (["--model", "mpl"], "'mpl'"),
    ],
)
def test_names_that_do_not_exist_are_misuse(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(words) == 2
    assert says in capsys.readouterr().err


def test_an_arm_that_does_not_train_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> None:
        raise BenchError("torch-ddp: its ranks ended early")

    monkeypatch.setattr(command, "run", run)
    assert command.main(["--ci"]) == 1
    assert "ended early" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--seeds", "0"], ["--periods", "8,x"], ["--epochs", "-1"]])
def test_numbers_must_be_counts(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2


def test_the_suites_beside_it_are_reached_by_their_names() -> None:
    for name in ("curves", "startup"):
        with pytest.raises(SystemExit) as ended:
            command.main([name, "--help"])
        assert ended.value.code == 0
