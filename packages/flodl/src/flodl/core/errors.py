"""The exception tree of flodl.

FlodlError                        every error flodl raises on purpose
├── ConfigError                   a setting is missing or wrong (also a ValueError)
├── FlowError                     a FlowBuilder was used in a way that describes no graph
├── GraphInputError               a graph was called with the wrong inputs (also a TypeError)
├── GraphPathError                a name or path that the graph does not have (also a KeyError)
├── NodeError                     a node of a graph cannot work with what reached it
│   ├── StateShapeError           carried state does not fit the current batch
│   └── SwitchIndexError          a selector chose a branch that a switch does not have
├── TraceError                    a trace was published twice, or under a name that is taken
├── NoDataError                   a picture or table of data that does not exist (a ValueError)
├── TopologyError                 a topology cannot be written or rebuilt
├── CaptureError                  something cannot be captured as a GPU graph (a RuntimeError)
│   ├── CaptureMismatchError      a replay gave other numbers than the eager step
│   └── StaleGraphError           what a captured graph relies on was changed
├── ExportError                   a graph cannot be exported
├── StepContractError             a train step returned something that cannot be trained on
├── NonFiniteError                a loss became NaN or infinite
├── UntrainedStatsError           evaluation would use statistics that no batch has set
├── LaunchError                   a run over several processes cannot be started (a RuntimeError)
│   ├── CudaBeforeRunError        a GPU was touched before the run
│   └── LauncherCudaError         a GPU was touched in a process that only directs the run
├── JoinRejected                  the controller turned a host away
├── FormationError                ranks could not form a group
├── RankError                     a rank raised; its traceback is in the text
├── AccountingError               samples of an epoch were lost or counted twice
├── RunFailed                     a run ended without a usable result
├── CheckpointError               a checkpoint cannot be written or read
│   ├── CheckpointFormatError     the file is not a sound checkpoint
│   ├── CheckpointVersionError    the file needs a newer flodl
│   ├── CheckpointMismatchError   the file belongs to another architecture
│   ├── CheckpointShapeError      tensors of the same name have other shapes
│   ├── CheckpointKeyError        names are missing or left over
│   └── StateFileError            a state file cannot be read
│       └── StateMismatchError    a state file is sound, but belongs to something else
└── DataError                     data cannot be used
    ├── DatasetFormatError        a file does not have the format it should have
    ├── DatasetUnavailableError   a file is not there and may not be fetched
    ├── ChecksumError             a file is there, but its bytes are not the published ones
    ├── SampleError               a sample or batch differs from the layout of its data set
    ├── BatchKeyError             a batch has no tensor of that name (also a KeyError)
    ├── DataWorkerError           loading a batch raised
    ├── DataStallError            loading a batch took longer than it may
    ├── StaleIteratorError        an older epoch iterator was used after a newer one started
    ├── ResumeMismatchError       a saved loader state belongs to other data or settings
    └── SamplerError              a sampler gave indices outside the data set
RunInterrupted                    Ctrl-C during a run (a KeyboardInterrupt, so that
                                  ``except Exception`` does not swallow it)
FlowWarning                       a graph was built, but part of it looks like a mistake

A message says what was asked, with its value, and what is true instead, with the legal set; the
hint says what to do.
"""

from __future__ import annotations

from typing import Any


class FlodlError(Exception):
    """Base of every error that flodl raises on purpose.

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


class ConfigError(FlodlError, ValueError):
    """A setting is missing or has a value it may not have."""


class FlowError(FlodlError):
    """A ``FlowBuilder`` was used in a way that describes no graph."""


class GraphInputError(FlodlError, TypeError):
    """A graph was called with the wrong number or names of inputs."""


class GraphPathError(FlodlError, KeyError):
    """A graph has no tag, node, state or path of the given name."""


class NodeError(FlodlError):
    """A node of a graph cannot work with the values that reached it."""


class StateShapeError(NodeError):
    """State carried over from the previous call does not fit the current batch."""


class SwitchIndexError(NodeError):
    """The selector of a switch returned no index of one of its branches."""


class TraceError(FlodlError):
    """A trace was published twice in one step, or its name already means another trace."""


class NoDataError(FlodlError, ValueError):
    """Curves, logs or profiles were asked for before there was anything to show."""


class TopologyError(FlodlError):
    """A graph cannot be written as a topology, or a topology describes no graph."""


class CaptureError(FlodlError, RuntimeError):
    """Something cannot be captured as a GPU graph, or a captured graph cannot be used so.

    Args:
        reason: A code that never changes, such as ``"host_sync"``.
        detail: What was met and what is true instead.
        location: ``file:line`` of the code that caused it, where that is known.
    """

    def __init__(
        self,
        reason: str,
        detail: str = "",
        location: str | None = None,
        *,
        hint: str | None = None,
    ) -> None:
        place = f" at {location}" if location else ""
        super().__init__(f"{reason}: {detail}{place}" if detail else reason + place, hint=hint)
        self.reason = reason
        self.detail = detail
        self.location = location


class CaptureMismatchError(CaptureError):
    """The first replay of a captured step gave other numbers than the eager step."""


class StaleGraphError(CaptureError):
    """What a captured graph relies on was changed, and capture was required."""


class ExportError(FlodlError):
    """A graph contains something that cannot be exported, or the exporter is not installed."""


class StepContractError(FlodlError):
    """A train step returned something that cannot be trained on."""


class NonFiniteError(FlodlError):
    """A loss became NaN or infinite."""


class UntrainedStatsError(FlodlError):
    """Evaluation would use running statistics that no batch has set yet."""


class LaunchError(FlodlError, RuntimeError):
    """A run over several processes cannot be started."""


class CudaBeforeRunError(LaunchError):
    """A GPU was touched before the run, in the process that starts the ranks."""


class LauncherCudaError(LaunchError):
    """A GPU was touched in a process that only directs the run and must own none."""


class JoinRejected(FlodlError):
    """The controller turned a host away.

    Args:
        code: What kind of refusal, such as ``"duplicate_member"``; it never changes.
        message: What was offered and what is true instead.
        retryable: Whether the same join may succeed later.
    """

    def __init__(
        self, code: str, message: str, *, retryable: bool = False, hint: str | None = None
    ) -> None:
        super().__init__(f"{code}: {message}", hint=hint)
        self.code = code
        self.retryable = retryable


class FormationError(FlodlError):
    """Ranks could not form a group."""


class RankError(FlodlError):
    """A rank raised; the text holds its traceback, the ``__cause__`` its error where it can.

    Args:
        message: Which rank raised what.
        traceback_text: The traceback as the rank saw it.
        rank: Number of the rank.
        host: Its host.
        epoch: Epoch at the time, ``None`` before the first.
        step: Step at the time, ``None`` before the first.
        batch_ranges: Half-open ranges of the epoch's order that the batch held.
        count: Ranks that raised the same.
    """

    def __init__(
        self,
        message: str,
        *,
        traceback_text: str = "",
        rank: int = 0,
        host: str = "",
        epoch: int | None = None,
        step: int | None = None,
        batch_ranges: tuple[tuple[int, int], ...] = (),
        count: int = 1,
    ) -> None:
        super().__init__(f"{message}\n\n{traceback_text}" if traceback_text else message)
        self.traceback_text = traceback_text
        self.rank = rank
        self.host = host
        self.epoch = epoch
        self.step = step
        self.batch_ranges = batch_ranges
        self.count = count


class AccountingError(FlodlError):
    """Samples of an epoch were lost or counted twice."""


class RunFailed(FlodlError):
    """A run ended without a usable result."""


class CheckpointError(FlodlError):
    """A checkpoint cannot be written or read."""


class CheckpointFormatError(CheckpointError):
    """The file is truncated, damaged, or no checkpoint at all."""


class CheckpointVersionError(CheckpointError):
    """The file was written by a version whose format this one cannot read."""


class CheckpointMismatchError(CheckpointError):
    """The structural hash in the file is that of another architecture."""


class CheckpointShapeError(CheckpointError):
    """Tensors of the same name have different shapes."""


class CheckpointKeyError(CheckpointError):
    """Names are missing from the file, or left over in it, under ``strict``."""


class StateFileError(CheckpointError):
    """A state file cannot be read.

    Args:
        path: The file.
        offset: Byte offset of the problem, or ``None`` when it has no single place.
        reason: What kind of problem it is, in a few words that never change.
        detail: What was expected and what stands there.
    """

    def __init__(
        self,
        path: str,
        offset: int | None,
        reason: str,
        detail: str = "",
        *,
        hint: str | None = None,
    ) -> None:
        place = path if offset is None else f"{path}, byte {offset}"
        super().__init__(f"{place}: {reason}" + (f": {detail}" if detail else ""), hint=hint)
        self.path = path
        self.offset = offset
        self.reason = reason


class StateMismatchError(StateFileError):
    """A state file is sound, but belongs to another class, other parameters or other settings."""


class DataError(FlodlError):
    """Data cannot be used."""


class DatasetFormatError(DataError):
    """A data file does not have the format it should have.

    Args:
        source: File or stream the bytes came from.
        offset: Byte offset at which the format broke, or ``None`` when it has no single place.
        reason: What was expected and what stands there.
    """

    def __init__(
        self, source: str, offset: int | None, reason: str, *, hint: str | None = None
    ) -> None:
        place = source if offset is None else f"{source}, byte {offset}"
        super().__init__(f"{place}: {reason}", hint=hint)
        self.source = source
        self.offset = offset
        self.reason = reason


class DatasetUnavailableError(DataError):
    """A data file is not on this machine and may not, or could not, be fetched."""


class ChecksumError(DataError):
    """A data file exists, but its bytes are not the published ones."""


class SampleError(DataError):
    """A sample or batch differs in count, shape, dtype or rows from what its data set holds."""


class BatchKeyError(DataError, KeyError):
    """A batch has no tensor of that name."""


class DataWorkerError(DataError):
    """Loading a batch raised; the original exception is the ``__cause__``."""


class DataStallError(DataError):
    """No batch arrived within the timeout of the loader."""


class StaleIteratorError(DataError):
    """An epoch iterator was used after a newer one had been started."""


class ResumeMismatchError(DataError):
    """A saved loader state names other data, another order or other settings than this loader."""


class SamplerError(DataError):
    """A sampler returned indices that the data set does not have."""


class RunInterrupted(KeyboardInterrupt):
    """A run was stopped by Ctrl-C; ``state`` holds what had been trained by then."""

    def __init__(self, message: str, state: Any = None) -> None:
        super().__init__(message)
        self.state = state


class FlowWarning(UserWarning):
    """A graph was built, but part of what was described has no effect."""
