import sys

import pytest

from flodl_cli.config.tree import Missing, Place
from flodl_cli.errors import ConfigError
from flodl_cli.runner.gpus import GpuScope
from flodl_cli.runner.launch import ChildSettings, child_environment, refuse_missing


def settings(**changes):
    values = {"verbosity": None, "color": None, "gpus": None, "project_root": "/p", **changes}
    return ChildSettings(**values)


def test_child_is_told_verbosity_color_and_project():
    assert child_environment(settings(), {}, {}) == {
        "FLODL_VERBOSITY": "1",
        "FLODL_COLOR": "auto",
        "FDL_PROJECT_ROOT": "/p",
        "FDL_GPU_FEATURE": "",
    }


def test_child_is_told_overlay_and_kind_of_gpu_code():
    env = child_environment(settings(overlay="ci", gpu_feature="cuda"), {}, {"FDL_ENV": "other"})
    assert (env["FDL_ENV"], env["FDL_GPU_FEATURE"]) == ("ci", "cuda")


def test_flags_win_over_manifest_and_surroundings():
    env = child_environment(
        settings(verbosity=3, color=False, gpus=GpuScope(("1",))),
        {"FLODL_VERBOSITY": "0", "CUDA_VISIBLE_DEVICES": "0"},
        {"FLODL_COLOR": "always"},
    )
    assert env["FLODL_VERBOSITY"] == "3"
    assert env["FLODL_COLOR"] == "never"
    assert env["CUDA_VISIBLE_DEVICES"] == env["HIP_VISIBLE_DEVICES"] == "1"


def test_surroundings_are_left_alone_without_a_flag():
    env = child_environment(settings(), {}, {"FLODL_VERBOSITY": "debug", "FLODL_COLOR": "never"})
    assert "FLODL_VERBOSITY" not in env
    assert "FLODL_COLOR" not in env


def test_child_is_told_the_program_that_started_it(monkeypatch, tmp_path):
    program = tmp_path / "fdl"
    program.write_text("#!/bin/sh\n")
    monkeypatch.setattr(sys, "argv", [str(program)])
    assert "FDL_BIN" not in child_environment(settings(), {}, {})
    program.chmod(0o755)
    assert child_environment(settings(), {}, {})["FDL_BIN"] == str(program)


def test_missing_feature_is_an_error_at_its_key():
    place = Place(file="/p/fdl.yml", line=4, key_path="docker")
    with pytest.raises(ConfigError, match="cannot") as caught:
        refuse_missing((Missing(place=place, message="fdl cannot", hint="remove it"),))
    assert (caught.value.line, caught.value.key_path) == (4, "docker")
    refuse_missing(())
