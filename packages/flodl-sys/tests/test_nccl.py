"""NCCL through dlopen: the real library where one is installed, and broken ones made on the spot.

What a process has loaded stays loaded, so each case runs in a process of its own.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from flodl_sys import nccl
from flodl_sys.errors import NcclError
from flodl_sys.nccl import NcclVersion, UniqueId
from flodl_sys.toolchain import find_toolchain

GOOD = """
extern "C" {
int ncclGetVersion(int* version) { *version = 22705; return 0; }
int ncclGetUniqueId(char* id) { for (int i = 0; i < 128; ++i) id[i] = char(i); return 0; }
const char* ncclGetErrorString(int) { return "unhandled system error"; }
}
"""


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Compiles a stand-in library and returns its path."""
    compiler = find_toolchain().compiler
    if compiler is None:
        pytest.skip("no C++ compiler to make stand-in libraries with")

    def build(name, source):
        folder = tmp_path_factory.mktemp(name)
        (folder / "nccl.cpp").write_text(source)
        library = folder / "libnccl.so.2"
        command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{library.name}"]
        subprocess.run([*command, folder / "nccl.cpp", "-o", library], check=True)
        return library

    return build


@pytest.fixture(scope="session")
def good(build):
    return build("good", GOOD)


def run(code, **environ):
    """Runs code in a child without sys.path's NCCL and returns what it printed."""
    prelude = "import logging, sys; logging.basicConfig(format='%(levelname)s %(message)s')\n"
    prelude += "from flodl_sys import errors, nccl\n"
    done = subprocess.run(
        [sys.executable, "-c", prelude + code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "FLODL_NCCL_PATH": "", **{k: str(v) for k, v in environ.items()}},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def failing(call):
    return (
        f"try: print({call})\nexcept errors.NcclError as e: print(type(e).__name__, e, sep='\\n')"
    )


@pytest.fixture(scope="session")
def installed():
    """The library of the nvidia-nccl wheel in this environment."""
    entries = [Path(entry, "nvidia/nccl/lib/libnccl.so.2") for entry in sys.path if entry]
    found = [file for file in entries if file.is_file()]
    if not found:
        pytest.skip("no nvidia-nccl wheel in this environment")
    return found[0]


@pytest.mark.usefixtures("native")
class TestTheInstalledLibrary:
    def test_it_is_found_without_torch_and_tells_its_version(self, installed):
        code = "n = nccl.load(); print(n.path, n.version(), 'torch' in sys.modules)"
        path, version, has_torch = run(code).split()
        assert Path(path).samefile(installed)
        assert int(version.split(".")[0]) >= 2
        assert has_torch == "False"

    @pytest.mark.usefixtures("installed")
    def test_unique_ids_have_128_bytes_and_differ(self):
        code = "a, b = nccl.unique_id(), nccl.unique_id(); print(len(bytes(a)), a != b)"
        assert run(code) == "128 True\n"

    def test_the_one_that_torch_loaded_is_taken(self, installed):
        if find_spec("torch") is None:
            pytest.skip("no torch in this environment")
        code = "import torch; print(nccl.load().path, *torch.cuda.nccl.version()); "
        code += "print(nccl.version())"
        path, *version = run(code).split()
        assert Path(path).samefile(installed)
        assert ".".join(version[:3]) == version[3]


@pytest.mark.usefixtures("native")
class TestTheSearch:
    def test_an_explicit_path_is_opened(self, good):
        code = f"n = nccl.load({str(good)!r}); print(n.path, n.version())"
        assert run(code) == f"{good} 2.27.5\n"

    def test_the_variable_comes_before_the_environment(self, good):
        assert run("print(nccl.load().path)", FLODL_NCCL_PATH=good) == f"{good}\n"

    def test_the_environment_comes_before_the_system(self, good, tmp_path):
        folder = tmp_path / "nvidia/nccl/lib"
        folder.mkdir(parents=True)
        (folder / "libnccl.so.2").symlink_to(good)
        code = f"sys.path.insert(0, {str(tmp_path)!r}); print(nccl.version())"
        assert run(code) == "2.27.5\n"

    def test_a_broken_library_of_the_environment_is_passed_over_aloud(self, good, tmp_path):
        folder = tmp_path / "nvidia/nccl/lib"
        folder.mkdir(parents=True)
        (folder / "libnccl.so.2").write_text("not a library")
        code = f"sys.path[:] = [{str(tmp_path)!r}] + [p for p in sys.path if 'site-' not in p]; "
        code += "print(nccl.load().version())"
        answer = run(code, LD_LIBRARY_PATH=good.parent)
        assert answer.startswith("2.27.5\nWARNING using the NCCL at libnccl.so.2; another could")
        assert "invalid ELF header" in answer or "file too short" in answer

    def test_the_loaded_one_wins_over_the_variable_with_a_warning(self, good, build):
        other = build("other", GOOD.replace("22705", "21805"))
        code = f"nccl.load({str(good)!r}); print(nccl.version())"
        answer = run(code, FLODL_NCCL_PATH=other)
        assert answer.startswith("2.27.5\n")
        assert f"FLODL_NCCL_PATH={other} is not used: {good} was already loaded" in answer

    def test_another_path_than_the_loaded_one_is_a_conflict(self, good, build):
        other = build("third", GOOD)
        code = f"nccl.load({str(good)!r})\n" + failing(f"nccl.load({str(other)!r})")
        kind, message, hint = run(code).splitlines()
        assert kind == "NcclConflictError"
        assert message == f"asked for the NCCL at {other}, but {good} is already loaded"
        assert hint.startswith("hint: ")

    def test_nothing_anywhere_names_each_place(self):
        code = "sys.path[:] = [p for p in sys.path if 'site-' not in p]\n"
        kind, message, hint = run(code + failing("nccl.version()")).splitlines()
        assert kind == "NcclNotFoundError"
        assert message.startswith("no NCCL library could be loaded: libnccl.so.2: libnccl.so.2: ")
        assert "FLODL_NCCL_PATH" in hint

    def test_a_path_that_does_not_work_ends_the_search(self, tmp_path):
        missing = tmp_path / "libnccl.so.2"
        kind, message, _ = run(failing("nccl.version()"), FLODL_NCCL_PATH=missing).splitlines()
        assert kind == "NcclNotFoundError"
        assert message.count("cannot open shared object file") == 1
        assert str(missing) in message


@pytest.mark.usefixtures("native")
class TestABrokenLibrary:
    def test_a_missing_function_is_named(self, build):
        library = build("lacking", GOOD.replace("ncclGetUniqueId", "ncclGetUniqueIdentity"))
        code = f"try: nccl.load({str(library)!r})\n"
        code += "except errors.NcclSymbolError as e: print(e.symbol); print(e)"
        symbol, message = run(code).splitlines()
        assert symbol == "ncclGetUniqueId"
        assert f"{library}: undefined symbol: ncclGetUniqueId" in message

    def test_a_failing_call_is_named_with_its_code(self, build):
        source = GOOD.replace(
            "int ncclGetUniqueId(char* id) {",
            "int ncclGetUniqueId(char*) { return 2; } int unused(char* id) {",
        )
        library = build("failing", source)
        code = f"try: nccl.load({str(library)!r}).unique_id()\n"
        code += "except errors.NcclCallError as e: print(e.call, e.code); print(e)"
        assert run(code).splitlines() == [
            "ncclGetUniqueId 2",
            "ncclGetUniqueId failed with code 2: unhandled system error",
            "hint: NCCL_DEBUG=INFO in the environment makes NCCL say more",
        ]


@pytest.mark.parametrize(
    ("code", "version"),
    [(2708, (2, 7, 8)), (21805, (2, 18, 5)), (20900, (2, 9, 0)), (23007, (2, 30, 7))],
)
def test_both_spellings_of_a_version_number_are_read(code, version):
    assert NcclVersion.from_code(code) == version
    assert str(NcclVersion.from_code(code)) == ".".join(map(str, version))


def test_a_unique_id_of_the_wrong_length_is_refused():
    with pytest.raises(NcclError, match="a unique id of 3 bytes; NCCL's have 128"):
        UniqueId(b"abc")
    assert bytes(UniqueId(bytes(nccl.UNIQUE_ID_BYTES))) == bytes(128)
