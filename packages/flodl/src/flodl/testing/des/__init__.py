"""A discrete-event simulator of a run over many ranks, driving the real controller.

Decisions are those of ``flodl.distributed.controller`` and ``flodl.distributed.elche``; ranks,
links and time are simulated, and nothing is trained. Runs are the same for the same seed.
"""

from flodl.testing.des.costs import Cluster as Cluster
from flodl.testing.des.costs import ReduceCost as ReduceCost
from flodl.testing.des.results import SimulationResult as SimulationResult
from flodl.testing.des.scenario import Scenario as Scenario
from flodl.testing.des.scenario import SpeedProfile as SpeedProfile
from flodl.testing.des.simulator import simulate as simulate
from flodl.testing.des.simulator import sync_efficiency as sync_efficiency

__all__ = [
    "Cluster",
    "ReduceCost",
    "Scenario",
    "SimulationResult",
    "SpeedProfile",
    "simulate",
    "sync_efficiency",
]
