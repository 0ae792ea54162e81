from collections.abc import Sequence

from _typeshed import ReadableBuffer, WriteableBuffer

NCCL_SONAME: str

def supported_isas() -> list[str]: ...
def weighted_average_f32(
    buffers: Sequence[ReadableBuffer | tuple[int, int]],
    weights: Sequence[float],
    out: WriteableBuffer | tuple[int, int],
    threads: int,
    isa: str,
) -> None: ...
def weighted_average_bf16(
    buffers: Sequence[ReadableBuffer | tuple[int, int]],
    weights: Sequence[float],
    out: WriteableBuffer | tuple[int, int],
    threads: int,
    isa: str,
) -> None: ...
def blend(
    p: WriteableBuffer | tuple[int, int],
    c: ReadableBuffer | tuple[int, int],
    alpha: float,
    threads: int,
    isa: str,
) -> None: ...
def pack_bf16(
    source: ReadableBuffer | tuple[int, int],
    out: WriteableBuffer | tuple[int, int],
    threads: int,
    isa: str,
) -> None: ...
def unpack_bf16(
    source: ReadableBuffer | tuple[int, int],
    out: WriteableBuffer | tuple[int, int],
    threads: int,
    isa: str,
) -> None: ...

class NcclLibrary:
    @staticmethod
    def open(path: str) -> NcclLibrary: ...
    @staticmethod
    def already_loaded() -> NcclLibrary | None: ...
    @property
    def path(self) -> str: ...
    def version(self) -> int: ...
    def unique_id(self) -> bytes: ...
