import json
import tomllib

import pytest


@pytest.fixture
def trained(project, monkeypatch):
    monkeypatch.setenv("FLODL_HW_ROOT", str(project.root / "hardware"))
    project.write("pyproject.toml", '[project]\nname = "x"\n')
    return project


def with_torch(project):
    project.write(
        ".venv/lib/python3.12/site-packages/torch/version.py",
        "__version__ = '2.13.0+cu130'\ncuda: str = '13.0'\n",
    )


def test_show_reads_the_environment(trained, fake_program):
    fake_program("nvidia-smi", "echo '0, GPU-1, RTX, 12.0, 16000'")
    with_torch(trained)
    out = trained.fdl("torch", "show").out
    assert out.startswith("Version: 2.13.0\nVendor:  nvidia\nCUDA:    13.0\n")
    assert "Covers:  not sm_120" in out
    data = json.loads(trained.fdl("torch", "show", "--json").out)
    assert (data["version"], data["covers_gpus"]) == ("2.13.0", False)


def test_show_without_torch_is_an_error(trained):
    result = trained.fdl("torch", "show")
    assert result.code == 1
    assert "no torch in" in result.err


def test_use_writes_the_index_and_prints_the_change(trained):
    preview = trained.fdl("torch", "use", "cu130", "--dry-run")
    assert '+name = "pytorch-cu130"' in preview.out
    assert "uv" not in (trained.root / "pyproject.toml").read_text()
    done = trained.fdl("torch", "use", "cu130")
    assert (done.code, "uv add torch" in done.err) == (0, True)
    data = tomllib.loads((trained.root / "pyproject.toml").read_text())
    assert data["tool"]["uv"]["sources"]["torch"] == {"index": "pytorch-cu130"}
    assert "says so already" in trained.fdl("torch", "use", "cu130").out


def test_use_auto_chooses_for_the_gpus_here(trained, fake_program):
    fake_program(
        "nvidia-smi",
        'case "$1" in *driver*) echo 580.65.06;; *) echo "0, GPU-1, RTX, 12.0, 16000";; esac',
    )
    result = trained.fdl("torch", "use", "auto")
    assert "cu132: newest CUDA build" in result.err
    assert "pytorch-cu132" in (trained.root / "pyproject.toml").read_text()


def test_misuse(trained, project):
    result = trained.fdl("torch", "use", "cu99")
    assert result.code == 2
    assert "backends: auto, cpu, cu126" in result.err
    (trained.root / "pyproject.toml").unlink()
    assert trained.fdl("torch", "use", "cpu").code == 2
    assert trained.fdl("torch").code == 0
