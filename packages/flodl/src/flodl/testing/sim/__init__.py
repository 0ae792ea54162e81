"""Runs over several ranks with faults on cue.

With threads for ranks, everything that decides and everything that trains is the code of a real
run; only processes, sockets and the host daemon are stood in for. With processes nothing is. Ranks
share the CPU, so ``delay_ms`` makes them slow.
"""

from flodl.testing.sim.clock import Clock as Clock
from flodl.testing.sim.faults import Fault as Fault
from flodl.testing.sim.links import SlowLink as SlowLink
from flodl.testing.sim.processes import run_processes as run_processes
from flodl.testing.sim.run import SimResult as SimResult
from flodl.testing.sim.run import run_threads as run_threads
