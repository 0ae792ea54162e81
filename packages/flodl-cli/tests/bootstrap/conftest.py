"""A copy of ./fdl in a small tree, and a PATH that holds nothing but fakes and core tools."""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[4] / "fdl"
CORE_TOOLS = (
    "cat cksum cp dirname env flock grep ln mkdir mv readlink rm sed sh sleep tail touch".split()
)

FAKE_UV = """#!/bin/sh
case $1 in
--version) echo "uv @VERSION@ (fake)"; exit ;;
esac
settings="native=${FLODL_SYS_NATIVE-} certs=${UV_SYSTEM_CERTS-} into=$UV_PROJECT_ENVIRONMENT"
echo "$0 $* $settings" >>"$CALLS"
echo "Resolved 3 packages"
[ ! -e "$STATE/uv-blocks" ] || { touch "$STATE/uv-started"; cat "$STATE/uv-blocks"; }
[ ! -e "$STATE/uv-fails" ] || { echo "no such host" >&2; exit 2; }
env=$UV_PROJECT_ENVIRONMENT
core=$env/lib/python3.11/site-packages/flodl_sys
mkdir -p "$env/bin" "$core"
case "$* $(command -v c++)" in
*--reinstall-package*/c++) touch "$core/_core.so" ;;
*) [ ! -e "$STATE/uv-builds-native" ] || touch "$core/_core.so" ;;
esac
cp "$STATE/env-python" "$env/bin/python"
cp "$STATE/env-fdl" "$env/bin/fdl"
"""

ENV_PYTHON = """#!/bin/sh
case "$*" in
"-m flodl_sys --upgradable")
    core=${0%/bin/python}/lib/python3.11/site-packages/flodl_sys/_core.so
    [ ! -e "$core" ] && command -v c++ >/dev/null ;;
"-m flodl_sys") echo "flodl-sys 0.1.0: pure build"; echo "why: no C++ compiler" ;;
esac
"""

ENV_FDL = """#!/bin/sh
echo "here: $PWD"
echo "path: $PATH"
echo "bytecode: ${PYTHONDONTWRITEBYTECODE-unset}"
for word in "$@"; do echo "word: $word"; done
exit ${FAKE_EXIT:-0}
"""

FAKE_PYTHON = """#!/bin/sh
echo "python $*" >>"$CALLS"
case "$*" in
"-c import sys"*) echo @VERSION@ ;;
"-c import ensurepip"*) [ ! -e "$STATE/no-ensurepip" ] ;;
"-m venv "*)
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python" ;;
"-m pip config list") [ ! -e "$STATE/pip-has-cert" ] || echo "global.cert='/x'" ;;
"-m pip install"*)
    echo "PIP_CERT=${PIP_CERT-}" >>"$CALLS"
    [ ! -e "$STATE/uv-blocks" ] || { touch "$STATE/uv-started"; cat "$STATE/uv-blocks"; }
    [ ! -e "$STATE/pip-fails" ] || { echo "could not find a version" >&2; exit 1; }
    cp "$STATE/private-uv" "${0%/python}/uv" ;;
esac
"""


class Checkout:
    """The small tree, its fakes, and what they were asked to do."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "the checkout"
        self.tools = folder / "tools"
        self.bin = folder / "bin"
        self.home = folder / "home"
        self.state = folder / "state"
        self.calls_file = folder / "calls"
        for made in (self.root, self.tools, self.bin, self.home, self.state):
            made.mkdir()
        for tool in CORE_TOOLS:
            found = shutil.which(tool)
            assert found, f"{tool} is not on this machine"
            (self.tools / tool).symlink_to(found)
        shutil.copy(SCRIPT, self.root / "fdl")
        self.write("pyproject.toml", '[tool.uv]\nrequired-version = ">=0.8"\n')
        self.write("packages/flodl-sys/pyproject.toml", "")
        self.write("packages/flodl-sys/CMakeLists.txt", "")
        self.write("packages/flodl-sys/cpp/average.cpp", "int x;\n")
        self.write("packages/flodl-sys/backend/build.py", "")
        self.write("ddp-bench/pyproject.toml", "")
        self.program(self.state / "env-python", ENV_PYTHON)
        self.program(self.state / "env-fdl", ENV_FDL)
        self.program(self.state / "private-uv", FAKE_UV.replace("@VERSION@", "0.9.1"))

    def write(self, name: str, text: str) -> None:
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def program(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def add_uv(self, version: str = "0.13.9", *, folder: Path | None = None) -> Path:
        return self.program((folder or self.bin) / "uv", FAKE_UV.replace("@VERSION@", version))

    def add_python(self, name: str = "python3", version: str = "3.11") -> Path:
        return self.program(self.bin / name, FAKE_PYTHON.replace("@VERSION@", version))

    def add_compiler(self) -> None:
        self.program(self.bin / "c++", "#!/bin/sh\n")

    def flag(self, name: str) -> None:
        (self.state / name).touch()

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "PATH": f"{self.bin}:{self.tools}",
            "HOME": str(self.home),
            "STATE": str(self.state),
            "CALLS": str(self.calls_file),
            **more,
        }

    def command(self, *words: str, script: Path | None = None) -> list[str]:
        shell = shutil.which("dash") or "sh"
        return [shell, str(script or self.root / "fdl"), *words]

    def run(
        self,
        *words: str,
        cwd: Path | None = None,
        script: Path | None = None,
        env: dict[str, str] | None = None,
        **more: str,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words, script=script),
            cwd=cwd or self.root,
            env=self.environment(**more) if env is None else env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            cwd=self.root,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def calls(self, containing: str = "") -> list[str]:
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [line for line in lines if containing in line]

    def block_uv(self) -> None:
        """Make uv and pip wait until ``release_uv``."""
        (self.state / "uv-started").unlink(missing_ok=True)
        os.mkfifo(self.state / "uv-blocks")

    def release_uv(self) -> None:
        opened = (self.state / "uv-blocks").rename(self.state / "opened")
        with contextlib.suppress(OSError):  # nobody waits
            os.close(os.open(opened, os.O_WRONLY | os.O_NONBLOCK))

    def wait_for(self, path: Path) -> None:
        deadline = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < deadline, f"{path} did not appear"
            time.sleep(0.01)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)
