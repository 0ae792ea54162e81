import dataclasses
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ddp_bench.speed import app as program
from ddp_bench.speed import conditions
from ddp_bench.speed.limits import Limits
from ddp_bench.speed.results import save
from ddp_bench.speed.suite import Suite

LIMITS = Limits(fp32=50e12, tf32=400e12, bf16=800e12, copy=4e12, kernel_us=1.04)


def call(*words):
    return CliRunner().invoke(program.app, list(words))


@pytest.fixture
def folder(tmp_path, make_row):
    """A folder with results in which one bar is missed."""
    save(tmp_path, [make_row(), make_row(arm="flodl-graph", median_epoch_ms=150.0)])
    (tmp_path / "limits.json").write_text(json.dumps(dataclasses.asdict(LIMITS)))
    return tmp_path


@pytest.fixture
def configs(monkeypatch, tmp_path, make_row):
    """The configurations that the suite was asked to run; it saves one row."""
    seen = []

    def run(self):
        seen.append(self._config)
        save(self._config.output, [make_row(device=self._config.device)])

    limits = json.dumps(dataclasses.asdict(LIMITS))
    monkeypatch.setattr(Suite, "run", run)
    monkeypatch.setattr(program, "_probe", lambda preset: limits)
    monkeypatch.setattr(conditions, "gpu_facts", lambda: {"name": "NVIDIA H200"})
    monkeypatch.chdir(tmp_path)
    return seen


def test_presets_of_the_manifest_are_those_of_the_program():
    manifest = Path(__file__).parents[2] / "bench" / "fdl.yml"
    words = re.findall(r"args: \[(.*)\]", manifest.read_text())
    assert sorted(words) == sorted({*program.PRESETS, "loader", "dashboard", "scaling"} - {"gpu"})


def test_gpu_preset_is_the_method_of_one_round(configs):
    assert call().exit_code == 0
    (config,) = configs
    assert (config.device, config.dims, config.rounds) == ("cuda", "full", 1)
    assert (config.discarded, config.runs, config.warmup, config.epochs) == (1, 3, 3, 20)
    assert config.policies == ("step", "epoch")
    assert [model.name for model in config.models][-1] == "feedback_loop"


@pytest.mark.parametrize("words", [["cpu"], ["--cpu"]])
def test_processor_preset_is_small(configs, words):
    assert call(*words).exit_code == 0
    (config,) = configs
    assert (config.device, config.dims) == ("cpu", "small")
    assert config.models[-1].name == "noop"


@pytest.mark.parametrize("words", [["publish"], ["cpu-publish"], ["publish", "--cpu"]])
def test_published_figures_have_ten_rounds(configs, words):
    call(*words)
    assert configs[0].rounds == 10


def test_options_win_over_the_preset(configs):
    call("cpu", "--rounds", "2", "--runs", "4", "--warmup", "0", "--sync", "step", "--discard", "2")
    (config,) = configs
    assert (config.rounds, config.runs, config.warmup, config.discarded) == (2, 4, 0, 2)
    assert config.policies == ("step",)


@pytest.mark.parametrize(("word", "tier"), [("--tier1", 1), ("--tier2", 2)])
def test_tiers_choose_models(configs, word, tier):
    call(word)
    assert {model.tier for model in configs[0].models} == {tier}


def test_models_and_arms_are_chosen_by_name(configs):
    call("cpu", "--bench", "mlp,noop", "--arms", "torch-eager,flodl-graph")
    (config,) = configs
    assert [model.name for model in config.models] == ["mlp", "noop"]
    assert [arm.name for arm in config.arms] == ["torch-eager", "flodl-graph"]


def test_report_is_printed_and_kept(folder):
    result = call("--report", "--output", str(folder))
    assert result.exit_code == 0
    assert result.stdout == (folder / "report.md").read_text()
    assert "missed: flodl-graph / torch-eager, mlp" in result.stderr


def test_gate_fails_on_a_missed_bar(folder):
    assert call("--report", "--gate", "--output", str(folder)).exit_code == 1


def test_gate_passes_where_all_bars_hold(tmp_path, make_row):
    save(tmp_path, [make_row(), make_row(arm="flodl-graph")])
    (tmp_path / "limits.json").write_text(json.dumps(dataclasses.asdict(LIMITS)))
    assert call("--report", "--gate", "--output", str(tmp_path)).exit_code == 0


def test_json_holds_results_limits_and_bars(folder):
    facts = json.loads(call("--report", "--json", "--output", str(folder)).stdout)
    assert len(facts["results"]) == 2
    assert facts["limits"]["fp32"] == 50e12
    assert [bar["holds"] for bar in facts["bars"]].count(False) >= 1


@pytest.mark.parametrize(
    "words",
    [
        ["cpu", "--bench", "resnet"],
        ["cpu", "--arms", "torch-quick"],
        ["cpu", "--rounds", "0"],
        ["fastest"],
        ["--report", "--output", "nothing-here"],
        ["--clock", "cpu", "--report", "--output", "nothing-here"],
    ],
)
def test_what_cannot_be_is_misuse(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(*words).exit_code == 2


def test_machine_without_a_gpu_is_told_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(conditions, "gpu_facts", dict)
    result = call("--output", str(tmp_path))
    assert result.exit_code == 2
    assert "fdl bench cpu" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_device_that_cannot_be_measured_is_a_failure(monkeypatch, tmp_path):
    preset = dataclasses.replace(program.PRESETS["cpu"], device="nowhere")
    with pytest.raises(program.BenchError, match="could not be measured"):
        program._probe(preset)
