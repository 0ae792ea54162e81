from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddp_bench.loading.__main__ import main

SMALL = 0.001


def test_the_command_prints_a_table_or_json_and_names_an_unknown_case(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    short = ["--device", "cpu", "--scale", str(SMALL), "--rounds", "1", "--batches", "4"]
    case = ["--workers", "0", "--case", "images in memory"]
    written = tmp_path / "loader.json"
    assert main([*short, *case, "--json", "--output", str(written)]) == 0
    text = capsys.readouterr().out
    assert written.read_text() == text
    facts = json.loads(text)
    assert [found["name"] for found in facts["cases"]] == ["images in memory"]
    assert {"samples_per_s", "idle_share", "ram_bytes"} <= set(facts["cases"][0]["arms"][0])
    assert isinstance(facts["passed"], bool)
    assert main([*short, *case]) == 0
    assert "streaming / best torch loader" in capsys.readouterr().out
    assert main([*short, "--case", "videos"]) == 2
    assert "case 'videos': there are images in memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--rounds", "0"], "'0': expected a whole number of at least 1"),
        (["--batches", "x"], "'x': expected a whole number"),
        (["--scale", "2"], "'2': expected a number above 0 and up to 1"),
        (["--workers", "0,many"], "'0,many': expected counts such as"),
        (["--device", "cuda:77"], "cuda:77"),
    ],
)
def test_misuse_is_named_and_exits_with_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(words)
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert says in capsys.readouterr().err


def test_the_gate_fails_when_a_bar_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    from ddp_bench.loading import __main__ as command
    from ddp_bench.loading.bars import Verdict
    from ddp_bench.loading.suite import CaseResult, SuiteResult

    def result(found: float) -> SuiteResult:
        verdict = Verdict(case="x", bar="y", found=found, least=1.0)
        made = CaseResult(name="x", arms=(), verdicts=(verdict,))
        return SuiteResult(
            device="cpu", torch_version="2", scale=1, rounds=1, threads=1, cases=(made,)
        )

    for found, code in ((0.9, 1), (1.0, 0)):
        monkeypatch.setattr(command, "run", lambda _, found=found: result(found))
        assert main(["--gate"]) == code


def test_files_of_the_sets_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", None)
    assert main(["--device", "cpu", "--scale", str(SMALL), "--case", "videos"]) == 2
    assert list(tmp_path.iterdir()) == []
