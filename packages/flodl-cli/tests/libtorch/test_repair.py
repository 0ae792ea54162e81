import pytest

from flodl_cli.errors import FdlError, LibtorchError
from flodl_cli.host import packages
from flodl_cli.libtorch.metadata import Metadata
from flodl_cli.libtorch.repair import repair

GPU = Metadata(torch="2.13.0", cuda="13.0", variant="cu130", platform="linux-x86_64")


@pytest.fixture
def prefix(tmp_path, make_libtorch, fake_program):
    fake_program("ldconfig", "exit 0")
    return make_libtorch(
        tmp_path / "v", "2.13.0+cu130", archs=(90,), needed=["libcudart.so.13", "libcuda.so.1"]
    )


def uv(fake_program, tmp_path, library, elf):
    (tmp_path / "library").write_bytes(elf())
    return fake_program(
        "uv",
        f"""echo "$@" >> {tmp_path}/calls
echo "$UV_CONCURRENT_DOWNLOADS" > {tmp_path}/jobs
if [ "$2" = compile ]; then
  cat > {tmp_path}/asked
  echo 'nvidia-cuda-runtime==13.0.3 \\'
  echo '    --hash=sha256:aa \\'
  echo '    --hash=sha256:bb'
  echo 'sympy==1.14 --hash=sha256:cc'
  exit 0
fi
while [ "$1" != --target ]; do shift; done
target=$2
while [ "$1" != -r ]; do shift; done
cp "$2" {tmp_path}/requirements
mkdir -p "$target/cu13/lib" && cp {tmp_path}/library "$target/cu13/lib/{library}" """,
    )


def test_nothing_to_do_is_nothing_done(tmp_path, make_libtorch, fake_program):
    fake_program("ldconfig", "exit 0")
    prefix = make_libtorch(tmp_path / "v")
    assert repair(prefix, Metadata(platform="linux-x86_64"), with_packages=True) == []


def test_hashed_files_get_the_names_that_are_asked_for(tmp_path, make_libtorch, elf, fake_program):
    fake_program("ldconfig", "exit 0")
    prefix = make_libtorch(tmp_path / "v", needed=["libgomp.so.1"])
    (prefix / "lib" / "libcudart-93ab.so.12").write_bytes(elf(soname="libcudart.so.12"))
    (prefix / "lib" / "libgomp-12cd.so.1").write_bytes(elf())
    done = repair(prefix, Metadata(platform="linux-x86_64"), with_packages=False)
    assert done == [
        "linked libcudart.so.12 to libcudart-93ab.so.12",
        "linked libgomp.so.1 to libgomp-12cd.so.1",
    ]
    assert (prefix / "lib" / "libgomp.so.1").resolve().name == "libgomp-12cd.so.1"


def test_missing_nvidia_libraries_come_through_uv_with_their_digests(
    prefix, tmp_path, fake_program, elf
):
    uv(fake_program, tmp_path, "libcudart.so.13", elf)
    done = repair(prefix, GPU, with_packages=True)
    assert done == ["added nvidia-cuda-runtime 13.0.3"]
    assert (tmp_path / "asked").read_text() == "torch==2.13.0"
    assert "--torch-backend cu130" in (tmp_path / "calls").read_text()
    assert "--require-hashes" in (tmp_path / "calls").read_text()
    assert (tmp_path / "requirements").read_text() == (
        "nvidia-cuda-runtime==13.0.3 --hash=sha256:aa --hash=sha256:bb\n"
    )
    linked = prefix / "lib" / "libcudart.so.13"
    assert str(linked.readlink()) == "../nvidia/cu13/lib/libcudart.so.13"
    assert linked.is_file()


@pytest.mark.parametrize("jobs", [None, 1, 4])
def test_uv_is_told_how_many_to_fetch_at_a_time(
    prefix, tmp_path, fake_program, elf, jobs, monkeypatch
):
    monkeypatch.delenv("UV_CONCURRENT_DOWNLOADS", raising=False)
    uv(fake_program, tmp_path, "libcudart.so.13", elf)
    repair(prefix, GPU, with_packages=True, jobs=jobs)
    assert (tmp_path / "jobs").read_text().strip() == ("" if jobs is None else str(jobs))


def test_pip_that_fetches_one_at_a_time_says_so(prefix, fake_program, monkeypatch):
    fake_program("pip3", "echo no network >&2; exit 2")
    found = packages.shutil.which
    monkeypatch.setattr(
        packages.shutil, "which", lambda name: None if name == "uv" else found(name)
    )
    told = []
    with pytest.raises(FdlError, match="no network"):
        repair(prefix, GPU, with_packages=True, jobs=4, tell=told.append)
    assert told[1] == (
        "pip fetches one package at a time, whatever --jobs 4 asks for; uv fetches more"
    )
    told.clear()
    with pytest.raises(FdlError, match="no network"):
        repair(prefix, GPU, with_packages=True, jobs=1, tell=told.append)
    assert len(told) == 1


def test_without_packages_nothing_is_fetched(prefix, fake_program):
    fake_program("uv", "exit 9")
    assert repair(prefix, GPU, with_packages=False) == []


def test_packages_that_do_not_bring_it_are_an_error(prefix, tmp_path, fake_program, elf):
    uv(fake_program, tmp_path, "libother.so", elf)
    with pytest.raises(LibtorchError, match=r"still missing after .*: libcudart\.so\.13"):
        repair(prefix, GPU, with_packages=True)


def test_version_without_nvidia_packages_is_an_error(prefix, fake_program):
    fake_program("uv", "echo sympy==1.14")
    with pytest.raises(LibtorchError, match="asks for no NVIDIA packages"):
        repair(prefix, GPU, with_packages=True)


def test_client_that_fails_is_quoted(prefix, fake_program):
    fake_program("uv", "echo 'no network' >&2; exit 2")
    with pytest.raises(FdlError, match="pip compile failed: no network"):
        repair(prefix, GPU, with_packages=True)


def test_mac_loses_the_quarantine_and_points_at_its_own_libomp(tmp_path, fake_program):
    lib = tmp_path / "v" / "lib"
    lib.mkdir(parents=True)
    for name in ("libomp.dylib", "libtorch_cpu.dylib"):
        (lib / name).write_text("")
    calls = tmp_path / "calls"
    for name in ("xattr", "install_name_tool", "codesign"):
        fake_program(name, f'echo "{name} $@" >> {calls}')
    fake_program(
        "otool", 'case "$2" in *torch_cpu*) echo "	/opt/llvm/lib/libomp.dylib (compat)";; esac'
    )
    done = repair(tmp_path / "v", Metadata(platform="macos-arm64"), with_packages=True)
    assert done == [
        "removed the quarantine mark",
        "pointed libtorch_cpu.dylib at the libomp beside it",
    ]
    assert calls.read_text().splitlines() == [
        f"xattr -dr com.apple.quarantine {tmp_path}/v",
        "install_name_tool -change /opt/llvm/lib/libomp.dylib @loader_path/libomp.dylib "
        f"{lib}/libtorch_cpu.dylib",
        f"codesign --force --sign - {lib}/libtorch_cpu.dylib",
    ]


def test_mac_without_the_tools_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "v" / "lib").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert repair(tmp_path / "v", Metadata(platform="macos-arm64"), with_packages=True) == []
