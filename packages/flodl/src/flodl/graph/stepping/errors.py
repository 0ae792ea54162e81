"""What goes wrong with the values of several replicas, besides what the core names.

FlodlError
└── TraceError
    └── NamespaceError    a name is that of a tag and of a trace
"""

from flodl.core.errors import TraceError


class NamespaceError(TraceError):
    """A name belongs to a tag and to the trace of another step, and both are to be gathered."""
