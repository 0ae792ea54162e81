from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ddp_bench.errors import BenchError
from ddp_bench.loading.__main__ import main
from ddp_bench.loading.arms import Arm, make_arms
from ddp_bench.loading.bars import judge
from ddp_bench.loading.measure import Compute, Figures, Meter
from ddp_bench.loading.sets import AugmentedItems, make_cases
from ddp_bench.loading.suite import check_equal

CPU = torch.device("cpu")
SMALL = 0.001


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    made = make_cases(tmp_path_factory.mktemp("sets"), SMALL)
    return {case.name: case for case in made}


def test_every_source_of_the_suite_has_a_case(cases: dict[str, Any]) -> None:
    assert list(cases) == [
        "images in memory",
        "augmented items",
        "large images in a file",
        "token windows in a file",
        "tar archives",
    ]


@pytest.mark.parametrize(
    "name", ["images in memory", "augmented items", "token windows in a file", "tar archives"]
)
def test_all_loaders_of_a_case_give_the_same_batches(cases: dict[str, Any], name: str) -> None:
    arms = make_arms(cases[name], CPU, (0,))
    assert {arm.side for arm in arms} == {"flodl", "torch"}
    check_equal(cases[name], arms)
    for arm in arms:
        arm.close()


def arm(values: list[int], side: str = "flodl") -> Arm:
    def epoch(number: int) -> Iterator[list[torch.Tensor]]:
        return iter([[torch.tensor([value])] for value in values])

    return Arm(name="fake", side=side, epoch=epoch, close=lambda: None)


def test_loaders_that_differ_are_not_measured(cases: dict[str, Any]) -> None:
    case = cases["images in memory"]
    check_equal(case, [arm([1, 2]), arm([1, 2], "torch")])
    for other in ([1, 3], [1]):
        with pytest.raises(BenchError, match="torch fake gives other batches than flodl"):
            check_equal(case, [arm([1, 2]), arm(other, "torch")])


def test_augmentation_depends_on_the_index_alone() -> None:
    images = torch.arange(2 * 3 * 32 * 32).view(2, 3, 32, 32).to(torch.uint8)
    data = AugmentedItems(images, torch.arange(2))
    assert torch.equal(data[1][0], data[1][0])
    assert data[0][0].shape == (3, 32, 32)
    assert torch.equal(data[0][0][:, 4:, 4:], images[0][:, :-4, :-4])


def test_a_meter_counts_samples_and_finds_one_batch_too_few() -> None:
    meter = Meter(arm([1, 2, 3]), Compute(CPU), batches=10)
    meter.warm_up()
    meter.round()
    figures = meter.figures()
    assert figures.samples_per_s > 0
    assert 0 <= figures.idle_share <= 1
    assert len(figures.rates) == 1
    with pytest.raises(BenchError, match="gave 1 batches in epoch 1: nothing to measure"):
        Meter(arm([1]), Compute(CPU), batches=10).warm_up()


def figures(name: str, side: str, rate: float, **changes: Any) -> Figures:
    base = Figures(
        name=name,
        side=side,
        samples_per_s=rate,
        rates=(rate, rate * 1.01),
        computing_samples_per_s=rate,
        idle_share=0.0,
        first_batch_ms=1.0,
        epoch_gap_batches=0.1,
        host_cpu_s_per_epoch=0.1,
        rss_bytes=1,
        vram_bytes=None,
    )
    return dataclasses.replace(base, **changes)


THEIRS = [
    figures("items, 0 workers", "torch", 100),
    figures("batched, 0 workers", "torch", 400),
    figures("items, 4 workers", "torch", 200),
]


def verdicts(ours: list[Figures], *, on_gpu: bool, case: str = "images in memory") -> Any:
    found = judge(case, [*ours, *THEIRS], on_gpu=on_gpu)
    return {verdict.bar: verdict.holds for verdict in found}


@pytest.mark.parametrize(
    ("resident", "streaming", "expected"),
    [
        (500, 400, [True, True, True]),
        (399, 300, [False, True, False]),
        (250, 500, [True, False, False]),
    ],
)
def test_bars_on_the_cpu(resident: float, streaming: float, expected: list[bool]) -> None:
    ours = [figures("resident", "flodl", resident), figures("streaming", "flodl", streaming)]
    found = verdicts(ours, on_gpu=False)
    assert [
        found["streaming / best torch loader"],
        found["resident / torch items, 0 workers"],
        found["resident / torch batched"],
    ] == expected
    assert "idle, resident" not in found


def test_bars_on_a_gpu() -> None:
    ours = [
        figures("resident", "flodl", 2000, idle_share=0.004),
        figures("streaming", "flodl", 500, idle_share=0.02),
    ]
    assert all(verdicts(ours, on_gpu=True).values())
    ours = [
        figures("resident", "flodl", 1999, idle_share=0.006, epoch_gap_batches=1.5),
        figures("streaming", "flodl", 500, idle_share=0.04, epoch_gap_batches=1.5),
    ]
    found = verdicts(ours, on_gpu=True)
    assert [bar for bar, holds in found.items() if holds] == ["streaming / best torch loader"]


def test_the_command_prints_a_table_or_json_and_names_an_unknown_case(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = ["--device", "cpu", "--scale", str(SMALL), "--rounds", "1", "--batches", "4"]
    case = ["--workers", "0", "--case", "images in memory"]
    assert main([*short, *case, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [found["name"] for found in facts["cases"]] == ["images in memory"]
    assert {"samples_per_s", "idle_share", "rss_bytes"} <= set(facts["cases"][0]["arms"][0])
    assert isinstance(facts["passed"], bool)
    assert main([*short, *case]) == 0
    assert "streaming / best torch loader" in capsys.readouterr().out
    assert main([*short, "--case", "videos"]) == 2
    assert "case 'videos': there are images in memory" in capsys.readouterr().err


def test_the_gate_fails_when_a_bar_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    from ddp_bench.loading import __main__ as command
    from ddp_bench.loading.bars import Verdict
    from ddp_bench.loading.suite import CaseResult, SuiteResult

    def result(found: float) -> SuiteResult:
        verdict = Verdict(case="x", bar="y", found=found, least=1.0)
        made = CaseResult(name="x", arms=(), verdicts=(verdict,))
        return SuiteResult(device="cpu", torch_version="2", scale=1, rounds=1, cases=(made,))

    for found, code in ((0.9, 1), (1.0, 0)):
        monkeypatch.setattr(command, "run", lambda _, found=found: result(found))
        assert main(["--gate"]) == code


def test_files_of_the_sets_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", None)
    assert main(["--device", "cpu", "--scale", str(SMALL), "--case", "videos"]) == 2
    assert list(tmp_path.iterdir()) == []
