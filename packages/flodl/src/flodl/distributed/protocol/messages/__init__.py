"""Every message of the control plane, and the name that each has on the wire."""

from __future__ import annotations

from typing import TypeAlias, get_args

from flodl.distributed.protocol.messages.callbacks import (
    CallbackDone,
    CallbackKind,
    CheckpointMode,
    RunCallback,
)
from flodl.distributed.protocol.messages.faults import (
    ErrorKind,
    Fence,
    Fenced,
    Nack,
    RankError,
    RankExit,
)
from flodl.distributed.protocol.messages.joining import (
    Accept,
    FormAck,
    Hello,
    Quiesced,
    Ready,
    Reconfigure,
    Reject,
    StatePart,
    StateSource,
    StateSync,
    Synced,
    Topology,
    World,
)
from flodl.distributed.protocol.messages.lifetime import (
    Abort,
    AlertRaised,
    Beat,
    Bye,
    LogLine,
    Stop,
    TelemetryRecord,
)
from flodl.distributed.protocol.messages.store import StoreOp, StoreReply, StoreRequest
from flodl.distributed.protocol.messages.window import (
    AtBarrier,
    Commit,
    Reduced,
    ReduceGo,
    SyncNow,
    WindowReport,
)
from flodl.distributed.protocol.messages.work import Lease, LeaseAck, Progress, Resume, Throttle

__all__ = [
    "MESSAGE_TYPES",
    "WIRE_NAMES",
    "Abort",
    "Accept",
    "AlertRaised",
    "AtBarrier",
    "Beat",
    "Bye",
    "CallbackDone",
    "CallbackKind",
    "CheckpointMode",
    "Commit",
    "ErrorKind",
    "Fence",
    "Fenced",
    "FormAck",
    "Hello",
    "Lease",
    "LeaseAck",
    "LogLine",
    "Message",
    "Nack",
    "Progress",
    "Quiesced",
    "RankError",
    "RankExit",
    "Ready",
    "Reconfigure",
    "ReduceGo",
    "Reduced",
    "Reject",
    "Resume",
    "RunCallback",
    "StatePart",
    "StateSource",
    "StateSync",
    "Stop",
    "StoreOp",
    "StoreReply",
    "StoreRequest",
    "SyncNow",
    "Synced",
    "TelemetryRecord",
    "Throttle",
    "Topology",
    "WindowReport",
    "World",
]

Message: TypeAlias = (
    Hello
    | Accept
    | Reject
    | Ready
    | World
    | FormAck
    | StateSync
    | Synced
    | Reconfigure
    | Quiesced
    | Lease
    | LeaseAck
    | Progress
    | Throttle
    | Resume
    | SyncNow
    | WindowReport
    | AtBarrier
    | ReduceGo
    | Reduced
    | Commit
    | RunCallback
    | CallbackDone
    | RankError
    | RankExit
    | Fence
    | Fenced
    | Nack
    | Stop
    | Abort
    | Bye
    | Beat
    | TelemetryRecord
    | AlertRaised
    | LogLine
    | StoreRequest
    | StoreReply
)

_SHORT_NAMES: dict[type[Message], str] = {
    TelemetryRecord: "telemetry",
    AlertRaised: "alert",
    LogLine: "log",
}


def _wire_name(kind: type[Message]) -> str:
    """Return ``window_report`` for ``WindowReport``."""
    spelled = "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__)
    return _SHORT_NAMES.get(kind, spelled.lstrip("_"))


WIRE_NAMES: dict[type[Message], str] = {kind: _wire_name(kind) for kind in get_args(Message)}
MESSAGE_TYPES: dict[str, type[Message]] = {name: kind for kind, name in WIRE_NAMES.items()}
