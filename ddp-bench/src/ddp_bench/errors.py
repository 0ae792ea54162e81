"""The errors of ddp-bench.

FlodlError (flodl)
└── BenchError                    every error ddp-bench raises on purpose
    ├── UsageError                the command line asks for something that cannot be (exit 2)
    ├── RegistrationError         a registered model definition is unusable
    ├── RunFolderError            a run folder cannot be made or written
    └── LogFormatError            a training log does not have the documented form
"""

from __future__ import annotations

from flodl import FlodlError


class BenchError(FlodlError):
    """Base of every error that ddp-bench raises on purpose."""


class UsageError(BenchError):
    """The command line asks for something that does not exist or does not fit together."""


class RegistrationError(BenchError):
    """An entry point of the group ``ddp_bench.models`` gives no usable model definition."""


class RunFolderError(BenchError):
    """A run folder cannot be made or written."""


class LogFormatError(BenchError):
    """A training log does not have the documented form."""
