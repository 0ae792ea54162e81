"""Part of Graph for training in its own words, and the protocol that distributed code fills."""

from flodl.graph.stepping.errors import NamespaceError as NamespaceError
from flodl.graph.stepping.part import Stepping as Stepping
from flodl.graph.stepping.protocols import LossContext as LossContext
from flodl.graph.stepping.protocols import Stepper as Stepper

__all__ = ["LossContext", "NamespaceError", "Stepper", "Stepping"]
