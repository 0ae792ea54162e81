import pytest

LIBRARY = "home/libtorch/nccl/builds/v2.27.5-sm61-sm120/lib/libnccl.so.2"


@pytest.fixture
def host(project, monkeypatch):
    monkeypatch.setenv("FLODL_HOME", str(project.root / "home"))
    monkeypatch.setenv("FLODL_HW_ROOT", str(project.root / "hardware"))
    monkeypatch.setenv("PATH", f"{project.root}/fakes:/usr/bin:/bin")
    return project


@pytest.fixture
def docker(host, fake_program):
    """A Docker that notes what it is asked, and hands out a library."""
    fake_program(
        "docker",
        f'echo "$*" >> {host.root}/calls\n'
        'if [ "$1" = cp ]; then mkdir -p "$3/lib"; echo > "$3/lib/libnccl.so.2"; fi',
    )
    return host


def test_library_is_built_once_and_the_lines_for_the_manifest_are_printed(docker):
    words = ("nccl", "build", "--archs", "12.0;6.1", "--tag", "v2.27.5-1")
    result = docker.fdl(*words)
    assert result.code == 0, result.err
    assert result.out == f"env:\n  LD_PRELOAD: {docker.root}/{LIBRARY}\n"
    assert (docker.root / LIBRARY).is_file()
    calls = [line.split()[0] for line in (docker.root / "calls").read_text().splitlines()]
    assert calls == ["info", "build", "create", "cp", "rm"]
    recipe = (docker.root / "home/libtorch/.build-cache/nccl/Dockerfile").read_text()
    assert "FROM nvidia/cuda:12.8.1-devel" in recipe, "CUDA 13 knows no 6.1"
    assert "--branch v2.27.5-1 https://github.com/NVIDIA/nccl" in recipe
    (docker.root / "calls").unlink()
    assert docker.fdl(*words) == result._replace(err=result.err)
    assert not (docker.root / "calls").exists()


def test_dry_run_prints_what_would_be_run(host):
    result = host.fdl("nccl", "build", "--archs", "9.0+PTX", "--tag", "v2.27.5-1", "--dry-run")
    assert result.code == 0
    assert "FROM nvidia/cuda:13.0.1-devel" in result.out
    assert (
        "NVCC_GENCODE='-gencode=arch=compute_90,code=sm_90 "
        "-gencode=arch=compute_90,code=compute_90'" in result.out
    )
    assert f"docker build --tag flodl-nccl:v2.27.5-sm90 {host.root}/home" in result.out
    assert not (host.root / "home").exists()


def test_tag_and_architectures_are_those_of_this_machine(host, fake_program):
    fake_program("nvidia-smi", "echo '0, GPU-1, RTX, 12.0, 16384'")
    site = ".venv/lib/python3.12/site-packages"
    host.write(f"{site}/torch/version.py", "__version__ = '2.13.0+cu130'\ncuda: str = '13.0'\n")
    host.write(f"{site}/torch/lib/libtorch_cuda.so", "NCCL version 2.21.5+cuda12.4\0")
    out = host.fdl("nccl", "build", "--dry-run").out
    assert "--branch v2.21.5-1" in out
    assert "code=sm_120" in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--archs", "9.0", "--tag", "2.27"), 2, "--tag '2.27' is no tag of NCCL"),
        (("--archs", "9.0"), 2, "no torch is here to match"),
        (("--tag", "v2.27.5-1"), 2, "no GPU is found here"),
        (("--archs", "9.0", "--jobs", "0", "--tag", "v2.27.5-1"), 2, "invalid value for '--jobs'"),
    ],
)
def test_misuse(host, words, code, said):
    result = host.fdl("nccl", "build", *words)
    assert (result.code, said in result.err) == (code, True), result.err


def test_no_docker_a_failed_step_and_no_library_are_errors(host, fake_program):
    words = ("nccl", "build", "--archs", "9.0", "--tag", "v2.27.5-1")
    fake_program("docker", "exit 1")
    assert "Docker does not answer" in host.fdl(*words).err
    fake_program("docker", '[ "$1" != build ]')
    assert "docker build" in host.fdl(*words).err
    fake_program("docker", "exit 0")
    result = host.fdl(*words)
    assert (result.code, "made no libnccl.so.2" in result.err) == (1, True)
    assert not [*(host.root / "home").rglob(".staging*")]


def test_amd_has_its_own(host):
    node = "hardware/sys/class/kfd/kfd/topology/nodes/1/properties"
    host.write(node, "simd_count 120\ngfx_target_version 110000\n")
    result = host.fdl("nccl", "build", "--tag", "v2.27.5-1")
    assert (result.code, "RCCL ships with the ROCm build" in result.err) == (2, True), result.err
