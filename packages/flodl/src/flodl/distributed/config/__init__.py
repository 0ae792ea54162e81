"""What a run over several ranks can be told, and what a guard of its convergence must do."""

from flodl.distributed.config.elastic import ElasticConfig as ElasticConfig
from flodl.distributed.config.elche import ElCheConfig as ElCheConfig
from flodl.distributed.config.guard import STABLE as STABLE
from flodl.distributed.config.guard import SUPPRESS_GROWTH as SUPPRESS_GROWTH
from flodl.distributed.config.guard import ConvergenceGuard as ConvergenceGuard
from flodl.distributed.config.guard import DivergenceReport as DivergenceReport
from flodl.distributed.config.guard import Verdict as Verdict
from flodl.distributed.config.guard import VerdictKind as VerdictKind
from flodl.distributed.config.guard import nudge_down as nudge_down
from flodl.distributed.config.modes import ElCheMode as ElCheMode
from flodl.distributed.config.modes import ModeName as ModeName
from flodl.distributed.config.timeouts import Timeouts as Timeouts

__all__ = [
    "STABLE",
    "SUPPRESS_GROWTH",
    "ConvergenceGuard",
    "DivergenceReport",
    "ElCheConfig",
    "ElCheMode",
    "ElasticConfig",
    "ModeName",
    "Timeouts",
    "Verdict",
    "VerdictKind",
    "nudge_down",
]
