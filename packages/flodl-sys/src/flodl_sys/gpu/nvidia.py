"""NVIDIA GPUs, from the rows of ``nvidia-smi``."""

import contextlib
import shutil
import subprocess
from pathlib import Path

from flodl_sys.gpu.model import GpuInfo, GpuNote, GpuScan, NoteKind, Vendor

TIMEOUT_S = 5.0

_COLUMNS = "index,uuid,name,compute_cap,memory.total"
_QUERY = (f"--query-gpu={_COLUMNS}", "--format=csv,noheader,nounits")
_MIB = 2**20


def scan_nvidia(root: Path, timeout_s: float = TIMEOUT_S) -> GpuScan:
    """Asks ``nvidia-smi``, which is on ``PATH`` or, under WSL, in ``usr/lib/wsl/lib`` of ``root``.

    No such tool means no NVIDIA GPU; a tool that fails or answers nonsense gives a note.
    """
    tool = _find_tool(root)
    if tool is None:
        return GpuScan()
    try:
        code, answer, complaint = _ask(tool, timeout_s)
    except subprocess.TimeoutExpired:
        return _note(
            NoteKind.TOOL_TIMEOUT,
            f"{tool} gave no answer within {timeout_s:g} s; the driver may hang (see dmesg)",
        )
    except OSError as error:
        return _note(NoteKind.TOOL_FAILED, f"{tool} cannot be run: {error.strerror or error}")
    if "no devices were found" in (answer + complaint).lower():
        return GpuScan()
    if code != 0:
        reason = " ".join((answer + complaint).split()) or "it gave no reason"
        return _note(NoteKind.TOOL_FAILED, f"{tool} failed with exit code {code}: {reason}")
    return parse_rows(answer)


def parse_rows(text: str) -> GpuScan:
    """Reads the rows ``index, uuid, name, compute_cap, memory.total`` (MiB) of all GPUs."""
    scan = GpuScan()
    for line in text.splitlines():
        if line.strip():
            scan += _parse_row(line)
    return scan


def _parse_row(line: str) -> GpuScan:
    fields = [field.strip() for field in line.split(",")]
    if len(fields) < 5 or not fields[0].isdecimal():
        return _note(
            NoteKind.BAD_OUTPUT,
            f"nvidia-smi gave the row {line.strip()!r}, which is not {_COLUMNS}; "
            "that GPU is left out",
        )
    capability = _capability(fields[-2])
    memory = fields[-1]
    return GpuScan(
        gpus=(
            GpuInfo(
                vendor=Vendor.NVIDIA,
                index=int(fields[0]),
                uuid=_told(fields[1]),
                name=", ".join(fields[2:-2]),
                arch=None if capability is None else f"sm_{capability[0]}{capability[1]}",
                compute_capability=capability,
                vram_bytes=int(memory) * _MIB if memory.isdecimal() else None,
            ),
        )
    )


def _capability(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def _told(text: str) -> str | None:
    # brackets mark reasons: not available, not supported, insufficient permissions
    return None if not text or text.startswith("[") else text


def _find_tool(root: Path) -> str | None:
    return shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=root / "usr/lib/wsl/lib")


def _ask(tool: str, timeout_s: float) -> tuple[int, str, str]:
    process = subprocess.Popen(
        [tool, *_QUERY],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    try:
        answer, complaint = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _give_up_on(process)
        raise
    return process.returncode, answer, complaint


def _give_up_on(process: subprocess.Popen[str]) -> None:
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    # a tool stuck in the driver does not even die: waiting for it would hang us too
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=1)


def _note(kind: NoteKind, message: str) -> GpuScan:
    return GpuScan(notes=(GpuNote(Vendor.NVIDIA, kind, message),))
