"""The exceptions of groups and collectives.

FlodlError
├── FormationError                ranks could not form a group (flodl.core.errors)
│   └── PayloadMismatchError      ranks would send each other different things
└── CollectiveError               something between ranks went wrong
    ├── StoreTimeout              a key did not appear in time
    ├── StoreClosed               the store's link is gone
    ├── Interrupted               a wait was given up because something else is to be done
    ├── GradientMismatchError     gradients are missing on some ranks only
    └── NcclError                 NCCL cannot be used, or a call of it failed
        ├── NcclUnavailable       there is no NCCL library, or no device it could work on
        └── NcclAborted           the communicator was aborted, perhaps by another thread
"""

from flodl.core.errors import FlodlError, FormationError

__all__ = [
    "CollectiveError",
    "FormationError",
    "GradientMismatchError",
    "Interrupted",
    "NcclAborted",
    "NcclError",
    "NcclUnavailable",
    "PayloadMismatchError",
    "StoreClosed",
    "StoreTimeout",
]


class PayloadMismatchError(FormationError):
    """Ranks differ in the names, shapes or dtypes of what they would send each other."""


class CollectiveError(FlodlError):
    """Something that ranks do together went wrong."""


class StoreTimeout(CollectiveError):
    """A key of the store did not appear in time."""


class StoreClosed(CollectiveError):
    """The link to the store is gone, or was closed on purpose."""


class Interrupted(CollectiveError):
    """A wait was given up because the caller has something more urgent to do."""


class GradientMismatchError(CollectiveError):
    """A parameter has a gradient on some ranks and none on others."""


class NcclError(CollectiveError):
    """NCCL cannot be used, or a call of it failed."""


class NcclUnavailable(NcclError):
    """There is no NCCL library, or no device that it could work on."""


class NcclAborted(NcclError):
    """The communicator was aborted, perhaps by another thread."""
