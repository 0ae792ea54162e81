"""Modules that torch lacks, and the protocols a graph recognizes on modules."""

from torch.nn import Identity as Identity

from flodl.nn.protocols import DetachableState as DetachableState
from flodl.nn.protocols import HasGraph as HasGraph
from flodl.nn.protocols import HasStructuralHash as HasStructuralHash
from flodl.nn.protocols import NamedInputModule as NamedInputModule
from flodl.nn.protocols import Resettable as Resettable
from flodl.nn.shaping import Detach as Detach
from flodl.nn.shaping import Lambda as Lambda
from flodl.nn.shaping import Reshape as Reshape
from flodl.nn.shaping import StateAdd as StateAdd

__all__ = [
    "Detach",
    "DetachableState",
    "HasGraph",
    "HasStructuralHash",
    "Identity",
    "Lambda",
    "NamedInputModule",
    "Resettable",
    "Reshape",
    "StateAdd",
]
