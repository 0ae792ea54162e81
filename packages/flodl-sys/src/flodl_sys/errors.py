"""The exception tree of flodl-sys.

SysError                          every error flodl-sys raises on purpose
├── NativeUnavailableError        the native part is not installed, or does not load
├── KernelArgumentError           a kernel was given memory or a number it cannot use (a ValueError)
├── NcclError                     NCCL cannot be used
│   ├── NcclNotFoundError         no library could be loaded
│   ├── NcclConflictError         another NCCL is already loaded in this process
│   ├── NcclSymbolError           the library lacks a function
│   └── NcclCallError             a function of the library failed
└── GpuDetectionError             it cannot be said which GPUs this machine has

A message says what was asked, with its value, and what is true instead; the hint says what to do.
"""


class SysError(Exception):
    """Base of every error that flodl-sys raises on purpose.

    Args:
        message: What was asked and what is true instead.
        hint: What to do about it, or ``None`` when the message already says so.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class NativeUnavailableError(SysError):
    """The compiled module is not there (a pure build) or cannot be loaded."""


class KernelArgumentError(SysError, ValueError):
    """A kernel was given memory, a count, a weight or a setting that it cannot use."""


class NcclError(SysError):
    """NCCL cannot be used."""


class NcclNotFoundError(NcclError):
    """No NCCL library could be loaded from any of the places that were tried."""


class NcclConflictError(NcclError):
    """An NCCL was asked for while another one is already loaded; two in one process break."""


class NcclSymbolError(NcclError):
    """The library is there but lacks ``symbol``, so it is too old or not NCCL at all."""

    def __init__(self, message: str, *, symbol: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.symbol = symbol


class NcclCallError(NcclError):
    """The library's function ``call`` returned ``code`` instead of success."""

    def __init__(self, message: str, *, call: str, code: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.call = call
        self.code = code


class GpuDetectionError(SysError):
    """It cannot be said which GPUs this machine has: a tool, a tree or a mask is broken."""
