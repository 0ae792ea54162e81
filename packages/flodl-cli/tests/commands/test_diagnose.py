import json

import pytest

GPU = 'case "$1" in *driver*) echo 580.65.06;; *) echo "0, GPU-1, RTX 5060 Ti, 12.0, 16384";; esac'


@pytest.fixture(autouse=True)
def _machine(project, monkeypatch, fake_program):
    monkeypatch.setenv("FLODL_HOME", str(project.root / "home"))
    monkeypatch.setenv("FLODL_HW_ROOT", str(project.root / "hardware"))
    fake_program("nvidia-smi", GPU)


def active(project, archs):
    folder = project.root / "home" / "libtorch" / "precompiled" / "cu130"
    folder.mkdir(parents=True)
    text = f"torch=2.13.0\ncuda=13.0\narchs={archs}\nsource=precompiled\nabi=1\n"
    (folder / ".arch").write_text(text)
    project.write("home/libtorch/.active", "precompiled/cu130\n")
    return folder


def test_report_says_what_fits(project):
    folder = active(project, "9.0 12.0")
    result = project.fdl("diagnose")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"Context: global ({project.root}/home)\n\nSystem:\n")
    assert "GPUs:\n  0: RTX 5060 Ti (sm_120, 16.0 GiB)\n  driver 580.65.06\n" in result.out
    assert f"libtorch:\n  2.13.0 (CUDA 13.0), for 9.0 12.0\n  {folder}\n" in result.out
    assert "Compatibility:\n  GPU 0 (RTX 5060 Ti, sm_120):  OK\n" in result.out
    assert "Warnings" not in result.out


def test_gpu_without_code_is_a_warning(project):
    active(project, "7.5 9.0")
    result = project.fdl("diagnose")
    assert result.code == 0
    assert "GPU 0 (RTX 5060 Ti, sm_120):  MISSING -- arch 12.0 not in [7.5 9.0]" in result.out
    assert "RTX 5060 Ti: no code for 12.0 in torch 2.13.0" in result.out
    assert project.fdl("diagnose", "--strict").code == 1


def test_json_has_the_documented_keys(project):
    active(project, "12.0")
    data = json.loads(project.fdl("diagnose", "--json").out)
    assert list(data) == [
        "context", "system", "gpus", "gpu_notes", "cuda", "torch", "libtorch", "variants",
        "warnings",
    ]  # fmt: skip
    assert list(data["system"]) == [
        "cpu", "threads", "ram_gb", "os", "wsl", "docker", "python", "uv"
    ]  # fmt: skip
    (gpu,) = data["gpus"]
    assert (gpu["sm"], gpu["arch_compatible"], gpu["vendor"]) == ("12.0", True, "nvidia")
    assert data["cuda"]["driver"] == "580.65.06"
    assert data["cuda"]["devices"] == [gpu]
    assert (data["torch"], data["variants"]) == (None, ["precompiled/cu130"])


def test_torch_of_the_environment_counts_before_libtorch(project):
    active(project, "12.0")
    project.manifest("")
    project.write(
        ".venv/lib/python3.12/site-packages/torch/version.py", "__version__ = '2.12.0+cpu'\n"
    )
    out = project.fdl("diagnose").out
    assert "torch:\n  2.12.0 (cpu)\n" in out
    assert "no code for 12.0 in torch 2.12.0 (it has none for GPUs)" in out


def test_libtorch_on_the_loaders_path_and_a_broken_pointer_are_warnings(
    project, monkeypatch, tmp_path
):
    active(project, "12.0")
    project.write("home/libtorch/.active", "precompiled/gone\n")
    project.write("lib/libtorch_cpu.so", "")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}/lib")
    warnings = json.loads(project.fdl("diagnose", "--json").out)["warnings"]
    assert any("the active variant is gone" in each for each in warnings)
    assert any(f"LD_LIBRARY_PATH holds {tmp_path}/lib" in each for each in warnings)


def test_bare_machine(project, fake_program):
    fake_program("nvidia-smi", "echo 'No devices were found'; exit 6")
    out = project.fdl("diagnose").out
    assert "GPUs:\n  none found\n" in out
    assert "libtorch:\n  none active" in out
