"""What is known about a GPU before any runtime is loaded, and what explains an absent one."""

from dataclasses import dataclass
from enum import StrEnum


class Vendor(StrEnum):
    """Who made the GPU, which decides the runtime that can use it."""

    NVIDIA = "nvidia"
    AMD = "amd"


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuInfo:
    """One physical GPU.

    Attributes:
        vendor: Decides which runtime and which visibility variables apply.
        index: Position among the GPUs of this vendor, as its driver counts them.
        name: Product name.
        uuid: Stays the same when indices change; ``None`` when the driver does not tell.
        arch: ``sm_90`` or ``gfx942``; ``None`` when the driver does not tell.
        compute_capability: ``(9, 0)`` on NVIDIA, ``None`` on AMD.
        vram_bytes: ``None`` when the driver does not tell: memory shared with the CPU, or a
            container that sees only a slice of the GPU.
    """

    vendor: Vendor
    index: int
    name: str
    uuid: str | None = None
    arch: str | None = None
    compute_capability: tuple[int, int] | None = None
    vram_bytes: int | None = None


class NoteKind(StrEnum):
    """Why GPUs may be missing from a scan."""

    TOOL_FAILED = "tool-failed"
    TOOL_TIMEOUT = "tool-timeout"
    BAD_OUTPUT = "bad-output"
    NO_KFD = "no-kfd"
    NO_PERMISSION = "no-permission"
    BAD_MASK = "bad-mask"


@dataclass(frozen=True, slots=True)
class GpuNote:
    """A finding that explains why a GPU is missing or incomplete; the message is for users."""

    vendor: Vendor
    kind: NoteKind
    message: str


@dataclass(frozen=True, slots=True)
class GpuScan:
    """The GPUs that were found, and what went wrong while looking."""

    gpus: tuple[GpuInfo, ...] = ()
    notes: tuple[GpuNote, ...] = ()

    def __add__(self, other: "GpuScan") -> "GpuScan":
        return GpuScan(self.gpus + other.gpus, self.notes + other.notes)
