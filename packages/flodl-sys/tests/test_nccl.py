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
#include <cstddef>
struct Id { char bytes[128]; };
struct Comm { int rank, size, open; };
static int groups = 0, aborted = 0;
extern "C" {
int ncclGetVersion(int* version) { *version = 22705; return 0; }
int ncclGetUniqueId(char* id) { for (int i = 0; i < 128; ++i) id[i] = char(i); return 0; }
const char* ncclGetErrorString(int) { return "unhandled system error"; }
int ncclCommInitAll(Comm** comms, int size, const int* devices) {
  for (int i = 0; i < size; ++i) {
    if (devices[i] > 7) return 4;
    comms[i] = new Comm{i, size, 1};
  }
  return 0;
}
int ncclCommInitRank(Comm** comm, int size, Id id, int rank) {
  if (id.bytes[1] != 1) return 4;
  *comm = new Comm{rank, size, 1};
  return 0;
}
int ncclCommDestroy(Comm* comm) { delete comm; return 0; }
int ncclCommAbort(Comm* comm) { ++aborted; delete comm; return 0; }
int ncclCommGetAsyncError(Comm* comm, int* code) { *code = comm->rank; return 0; }
int ncclAllReduce(const void*, void* out, size_t n, int dtype, int op, Comm* comm, void*) {
  if (dtype != 7 || groups != 1) return 4;
  for (size_t i = 0; i < n; ++i) ((float*)out)[i] = ((float*)out)[i] * comm->size + op;
  return 0;
}
int ncclBroadcast(const void*, void* out, size_t n, int, int root, Comm* comm, void*) {
  for (size_t i = 0; i < n; ++i) ((float*)out)[i] = 10 * root + comm->rank;
  return 0;
}
int ncclGroupStart() { ++groups; return 0; }
int ncclGroupEnd() { --groups; return aborted > 1 ? 3 : 0; }
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


MEMORY = """
import array
data = array.array("f", [1.0, 2.0])
where = data.buffer_info()[0]
"""


@pytest.mark.usefixtures("native")
class TestACommunicator:
    """Over a stand-in that works on the host's memory, and only within a group."""

    def test_operations_reach_the_library_within_a_group(self, good):
        code = MEMORY + f"n = nccl.load({str(good)!r}); a, b, c = n.init_all([0, 1, 5])\n"
        code += "with n.group(): a.all_reduce(where, 2, 7, 4, 0)\n"
        code += "print(*data); b.broadcast(where, 1, 7, 2, 0); print(*data, b.async_error())"
        assert run(code).splitlines() == ["7.0 10.0", "21.0 10.0 1"]

    def test_a_rank_joins_with_all_bytes_of_the_id(self, good):
        code = MEMORY + f"n = nccl.load({str(good)!r}); c = n.init_rank(2, n.unique_id(), 1)\n"
        code += "c.broadcast(where, 1, 7, 0, 0); print(data[0])"
        assert run(code) == "1.0\n"

    def test_an_aborted_one_is_closed_and_says_so(self, good):
        code = MEMORY + f"n = nccl.load({str(good)!r}); a, b = n.init_all([0, 1])\n"
        code += "a.abort(); a.abort(); a.close(); print(a.is_open, b.is_open)\n"
        code += failing("a.all_reduce(where, 2, 7, 0, 0)")
        opened, kind, message, _ = run(code).splitlines()
        assert opened == "False True"
        assert kind == "NcclCallError"
        assert message == "ncclAllReduce failed with code 5: the communicator is closed"

    def test_errors_of_forming_and_of_starting_a_group_are_named(self, good):
        code = MEMORY + f"n = nccl.load({str(good)!r})\n" + failing("n.init_all([0, 9])") + "\n"
        code += "for c in n.init_all([0, 1]): c.abort()\n"
        code += "def grouped():\n  with n.group(): pass\n" + failing("grouped()")
        lines = run(code).splitlines()
        assert lines[1].startswith("ncclCommInitAll failed with code 4: ")
        assert lines[4].startswith("ncclGroupEnd failed with code 3: ")


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
