import json
import socket

import pytest

from flodl_cli.commands import probe

ONE_GPU = 'case "$1" in *driver*) echo 580.65.06;; *) echo "0, GPU-1, RTX, 12.0, 16384";; esac'


@pytest.fixture
def host(project, monkeypatch, fake_program, tmp_path):
    monkeypatch.setenv("FLODL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLODL_HW_ROOT", str(tmp_path / "hardware"))
    fake_program("nvidia-smi", ONE_GPU)
    with socket.socket() as free:
        free.bind(("", 0))
        monkeypatch.setattr(probe, "_PORT", free.getsockname()[1])
        port = free.getsockname()[1]

    def run(*words, archs="12.0", cuda="13.0", with_nccl=True):
        folder = tmp_path / "home" / "libtorch" / "precompiled" / "x"
        (folder / "lib").mkdir(parents=True, exist_ok=True)
        (folder / ".arch").write_text(f"torch=2.13.0\ncuda={cuda}\narchs={archs}\n")
        (folder.parents[1] / ".active").write_text("precompiled/x\n")
        text = b"NCCL version 2.30.7+cuda13.0" if with_nccl else b""
        (folder / "lib" / "libnccl.so.2").write_bytes(text)
        return project.fdl("probe", "--port", str(port), *words)

    return run


def test_ready_host(host, project, tmp_path):
    (tmp_path / "data").mkdir()
    result = host("--data-path", str(tmp_path / "data"))
    assert (result.code, result.err) == (0, "")
    assert "gpu:     0: RTX (sm_120)\n" in result.out
    assert "nccl:    2.30.7 in " in result.out
    assert result.out.endswith("verdict: READY\n")


def test_default_data_folder_is_a_warning_and_a_named_one_an_error(host, monkeypatch, tmp_path):
    monkeypatch.setattr(probe, "_DATA", tmp_path / "gone")
    assert host().out.endswith("verdict: READY (1 warning)\n")
    named = host("--data-path", str(tmp_path / "gone"))
    assert named.code == 1
    assert named.out.endswith("verdict: ISSUES (1 error)\n")
    assert host("--skip-mount").out.endswith("verdict: READY\n")
    monkeypatch.setenv("FLODL_DATA_PATH", str(tmp_path / "gone"))
    assert host().code == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"archs": "9.0"}, "has no code for 12.0, only for 9.0"),
        ({"cuda": "none"}, "is built for cpu, and the GPUs are nvidia"),
    ],
)
def test_torch_that_does_not_fit_the_gpus_is_an_error(host, changes, said):
    result = host("--skip-mount", **changes)
    assert result.code == 1
    assert said in result.out


def test_missing_nccl_matters_with_two_gpus(host, fake_program):
    assert host("--skip-mount", with_nccl=False).out.endswith("verdict: READY (1 warning)\n")
    two = ONE_GPU.replace("esac", "esac; echo '1, GPU-2, RTX, 12.0, 16384'")
    fake_program("nvidia-smi", two)
    assert "error:   no NCCL with torch 2.13.0" in host("--skip-mount", with_nccl=False).out


def test_no_gpu_is_a_warning_and_no_torch_an_error(host, project, fake_program, tmp_path):
    fake_program("nvidia-smi", "echo 'No devices were found'; exit 6")
    result = host("--skip-mount")
    assert result.code == 0
    assert "only the CPU backends can run" in result.out
    (tmp_path / "home" / "libtorch" / ".active").unlink()
    assert "no torch in the environment" in project.fdl("probe", "--skip-mount").out


def test_tools_of_the_manifest_are_looked_for(host, project, monkeypatch, tmp_path):
    project.manifest(
        "join: {source: 'rsync://h:/x', ssh: user@h}\npublish: {source: 'file:///x'}\n"
    )
    project.write(".active", "")
    monkeypatch.setenv("PATH", str(tmp_path / "fakes"))
    out = host("--skip-mount").out
    assert "join.source needs rsync: apt-get install rsync" in out
    assert "join.ssh needs ssh: apt-get install openssh-client" in out


def test_port_in_use_is_an_error(host, project):
    with socket.socket() as server:
        server.bind(("", 0))
        server.listen()
        result = host("--skip-mount", "--port", str(server.getsockname()[1]))
    assert result.code == 1
    assert "is in use: choose another one with --port" in result.out


def test_service_is_looked_for(host, project, fake_program):
    fake_program("docker", "exit 1")
    assert "Docker does not answer" in host("--skip-mount", "--docker", "cuda").out
    fake_program("docker", "exit 0")
    project.write("compose.yaml", "services: {dev: {image: x}}\n")
    assert (
        "no compose service 'cuda'; services: dev" in host("--skip-mount", "--docker", "cuda").out
    )
    assert host("--skip-mount", "--docker", "dev").code == 0


def test_named_libtorch_counts_alone(host, make_libtorch, tmp_path):
    make_libtorch(tmp_path / "opt", "2.12.0+cu130", archs=(90,))
    result = host("--skip-mount", "--libtorch-path", str(tmp_path / "opt"))
    assert "torch 2.12.0 has no code for 12.0, only for 9.0" in result.out
    assert host("--libtorch-path", str(tmp_path / "none")).code == 1


def test_json_has_the_documented_keys(host):
    data = json.loads(host("--skip-mount", "--json").out)
    assert list(data) == [
        "host", "gpus", "torch", "libtorch", "data_path", "nccl", "issues", "warnings", "ready"
    ]  # fmt: skip
    assert (data["ready"], data["nccl"]["version"], data["data_path"]) == (True, "2.30.7", None)
