"""A GPU that is the CPU: captures are tapes of operations, replays run them on the same tensors.

It has what makes a real capture dangerous: Python runs once, tensors keep their place, numbers
are baked in, random numbers go on, and reading a value during a capture is an error.
"""

import contextlib
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from flodl.device.gpu_graph import CaptureMode
from flodl.optim.capture import CaptureSupport

FORBIDDEN = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero"}


def storage(tensor):
    return tensor.untyped_storage()


class Tape(TorchDispatchMode):
    """Runs operations, notes them, and keeps what they overwrite outside."""

    active = 0

    def __init__(self):
        super().__init__()
        self.operations = []
        self.made = set()
        self.overwritten = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if name in FORBIDDEN:
            raise RuntimeError(f"{name}: operation not permitted when stream is capturing")
        for value, argument in zip(args, func._schema.arguments, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for leaf in tree_iter(value):
                    self.keep(leaf)
        for leaf in tree_iter(kwargs):
            self.keep(leaf)
        if name == "native_batch_norm":  # writes its statistics and does not say so
            self.keep(args[3])
            self.keep(args[4])
        inputs = {storage(t).data_ptr() for t in tree_iter((args, kwargs)) if is_tensor(t)}
        result = func(*args, **kwargs)
        outputs = [t for t in tree_iter(result) if is_tensor(t)]
        for tensor in outputs:
            if storage(tensor).data_ptr() not in inputs:
                self.made.add(storage(tensor).data_ptr())
        writes = any(a.alias_info is not None and a.alias_info.is_write
                     for a in func._schema.arguments)  # fmt: skip
        if writes or any(storage(t).data_ptr() not in inputs for t in outputs):
            # a graph knows places, not tensors: these may be given other memory
            placed = tree_map_only(Tensor, Tensor.detach, (args, kwargs))
            self.operations.append((func, *placed, outputs))
        return result

    def keep(self, leaf):
        if is_tensor(leaf) and storage(leaf).data_ptr() not in self.made:
            place = storage(leaf).data_ptr()
            if place not in self.overwritten:
                self.overwritten[place] = (storage(leaf), storage(leaf).clone())

    def undo(self):
        for kept, content in self.overwritten.values():
            kept.copy_(content)


def is_tensor(value):
    return isinstance(value, Tensor)


class TapeGraph:
    """Stands for ``GpuGraph``."""

    def __init__(self):
        self.operations = None
        self.replays = 0

    @contextlib.contextmanager
    def capture(self, pool=None, mode=CaptureMode.THREAD_LOCAL, stream=None, generators=()):
        tape, state = Tape(), torch.get_rng_state()
        Tape.active += 1
        try:
            with tape:
                yield self
        finally:
            Tape.active -= 1
            with torch.no_grad():
                tape.undo()
            torch.set_rng_state(state)
        self.operations = tape.operations

    @torch.no_grad()
    def replay(self):
        self.replays += 1
        for func, args, kwargs, outputs in self.operations:
            result = func(*args, **kwargs)
            fresh = [t for t in tree_iter(result) if is_tensor(t)]
            for old, new in zip(outputs, fresh, strict=True):
                if storage(old).data_ptr() != storage(new).data_ptr():
                    old.copy_(new)


class Nothing:
    """Stands for a stream or an event: everything is done at once here."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        return lambda *args, **kwargs: None

    def query(self):
        return True

    def elapsed_time(self, other):
        return 1.0


class CapturableSGD(torch.optim.Optimizer):
    """SGD with momentum whose rate is a tensor, as the optimizers on a GPU have it."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0):
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "capturable": True})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                    state["step"] = torch.zeros(())
                state["step"] += 1
                gradient = p.grad + group["weight_decay"] * p
                state["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
                p.sub_(group["lr"] * state["momentum_buffer"])


def prepare(optimizer):
    for group in optimizer.param_groups:
        if not isinstance(group["lr"], Tensor):
            group["lr"] = torch.tensor(float(group["lr"]))


def install(monkeypatch):
    """Make torch and flodl believe in the GPU."""
    cuda = {
        "Stream": Nothing,
        "Event": Nothing,
        "stream": lambda stream: contextlib.nullcontext(),
        "current_stream": lambda device=None: Nothing(),
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "mem_get_info": lambda device=None: (1 << 40, 1 << 40),
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "current_device": lambda: None,
        "is_current_stream_capturing": lambda: Tape.active > 0,
    }
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    support = CaptureSupport(is_capturable=True)
    ours = {
        "flodl.engine.capture.GpuGraph": TapeGraph,
        "flodl.engine.recorder.gpu_graph_pool_handle": object,
        "flodl.engine.recorder.pool_bytes": lambda pool: 1,
        "flodl.engine.step.runs_on_gpu": lambda device: True,
        "flodl.engine.step.capture_support": lambda optimizer: support,
        "flodl.engine.step.prepare_for_capture": prepare,
        "flodl.engine.ring.EarlyReader._pinned": lambda reader: torch.empty(()),
        "flodl.engine.ring.MetricRing._pinned": (
            lambda ring: torch.empty(ring._half, ring._capacity)
        ),
    }
    for name, value in ours.items():
        monkeypatch.setattr(name, value)
    return SimpleNamespace(SGD=CapturableSGD, Graph=TapeGraph)
