import re
from importlib.metadata import PackageNotFoundError, version

import torch

from ddp_bench import environment
from ddp_bench.environment import describe_environment, rank_line
from ddp_bench.training_log import parse_log

CPU = torch.device("cpu")


def test_environment_names_versions_machine_and_time():
    facts = describe_environment(CPU)
    assert set(facts) == {
        "flodl", "torch", "cuda", "driver", "nccl", "python", "cpu", "gpus", "commit", "dirty",
        "utc", "host",
    }  # fmt: skip
    assert facts["flodl"] == version("flodl")
    assert facts["torch"] == torch.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", facts["utc"])


def test_gpu_facts_of_a_cpu_run_are_unmeasured():
    facts = describe_environment(CPU)
    assert [facts[key] for key in ("cuda", "driver", "nccl", "gpus")] == [None] * 4


def test_without_git_the_revision_is_unknown(monkeypatch):
    monkeypatch.setenv("PATH", "")
    facts = describe_environment(CPU)
    assert (facts["commit"], facts["dirty"]) == (None, None)


def test_sources_that_are_not_installed_have_no_version(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(environment, "version", missing)
    assert describe_environment(CPU)["flodl"] is None


def test_machine_that_hides_its_processor_has_no_name_for_it(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "_CPU_INFO", tmp_path / "missing")
    monkeypatch.setattr("platform.processor", lambda: "")
    assert environment.cpu_name() is None
    assert ": unknown CPU (" in rank_line(CPU)


def test_rank_line_is_one_a_training_log_may_hold():
    text = f"# {rank_line(CPU)}\n# train_only: 0.0s (eval: 0.0s)\n# total: 0.0s (0m 00s)\n"
    assert parse_log(text).ranks == (rank_line(CPU),)
