"""How unequal ranks share a window: pure arithmetic, without torch, clock or I/O."""

from flodl.distributed.elche.cadence import ElChe as ElChe
from flodl.distributed.elche.growth import Phase as Phase
from flodl.distributed.elche.guards import NoGuard as NoGuard
from flodl.distributed.elche.guards import TrendGuard as TrendGuard
from flodl.distributed.elche.guards import guard_of as guard_of
from flodl.distributed.elche.meta import MetaController as MetaController
from flodl.distributed.elche.msf import DriftRate as DriftRate
from flodl.distributed.elche.msf import MsfGuard as MsfGuard
from flodl.distributed.elche.speed import DeviceSpec as DeviceSpec
from flodl.distributed.elche.throttle import Overshoot as Overshoot
from flodl.distributed.elche.throttle import throttled as throttled
from flodl.distributed.elche.weights import LrRamp as LrRamp
from flodl.distributed.elche.weights import lr_scale as lr_scale
from flodl.distributed.elche.weights import weights as weights
