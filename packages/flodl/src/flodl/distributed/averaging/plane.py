"""What a rank's loop drives: form a generation, average window after window, take over, leave."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch._C._distributed_c10d import Store

from flodl.core.errors import FlodlError, FormationError
from flodl.distributed.averaging.assembly import Assembly, make_exchange
from flodl.distributed.averaging.consensus import Consensus
from flodl.distributed.averaging.exchange import Exchange
from flodl.distributed.averaging.moments import SharedMoments
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.rounds import Progress, Rounds
from flodl.distributed.averaging.state import State, hand_over
from flodl.distributed.collective.agreement import agree
from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.errors import CollectiveError, Interrupted
from flodl.distributed.collective.formation import Formation
from flodl.distributed.collective.graveyard import Graveyard
from flodl.distributed.collective.group import GroupPlan
from flodl.distributed.collective.patience import Interrupt, never

__all__ = ["Outcome", "PayloadHash", "Plane", "Progress"]

_FAREWELL_S = 2.0

Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class PayloadHash:
    """What a rank would send; ranks must agree before a collective starts."""

    nbytes: int
    dtype: str
    signature: str
    """Digest of names, shapes and dtypes."""

    @property
    def text(self) -> str:
        """All of it in one word."""
        return f"{self.nbytes}-{self.dtype}-{self.signature[:32]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How an average went on this rank."""

    window: int
    ms: float
    """From its start to the result."""
    bytes_out: int
    bytes_in: int
    delta: float | None = None
    """``||p_k - c|| / ||c||``; ``None`` where it was not measured."""
    pre_norm: float | None = None
    post_norm: float | None = None


class Plane(ABC):
    """The data plane of one rank, for one kind of payload.

    All calls come from the rank's main thread, but those that say otherwise. None but `form`,
    `synchronize` and `wait` waits for another rank, and those can be interrupted.
    """

    def __init__(
        self, model: nn.Module, config: PlaneConfig, *, clock: Clock = time.monotonic
    ) -> None:
        self._model = model
        self._config = config
        self._clock = clock
        self._graveyard = Graveyard()
        self._rounds = Rounds(is_background=config.is_background)
        self._formation: Formation | None = None
        self._store: Store | None = None
        self._transfers = 0
        self._started_at = 0.0
        self._outcome: Outcome | None = None
        self.last_completed = 0
        """Last window (with gradients: step) that was committed here; 0 before the first."""
        self.moments: SharedMoments | None = None
        """Corrects the optimizer's second moments, where that is asked for and it has such."""

    @property
    def device(self) -> torch.device:
        """Where payloads live: the GPU for groups of GPUs, else the CPU."""
        if self._config.fabric == "gloo":
            return torch.device("cpu")
        return next(self._model.parameters()).device

    def form(self, formation: Formation, store: Store, *, interrupted: Interrupt = never) -> None:
        """Leave the generation before, and form this one with all its ranks.

        After an error a `ControlStore` is closed: try again over a new one.

        Raises:
            Interrupted: ``interrupted()`` became true first.
            PayloadMismatchError: The ranks differ in what they would send.
            FormationError: A rank did not come, or could not be reached.
        """
        self.abandon()
        self._formation, self._store, self._transfers = None, None, 0
        try:
            exchange = self._formed_exchange(formation, store, interrupted)
        except BaseException:
            if isinstance(store, ControlStore):
                store.close()  # or a thread would wait on for ranks that never come
            raise
        self._rounds.use(exchange)
        self._formation, self._store = formation, store

    def _formed_exchange(
        self, formation: Formation, store: Store, interrupted: Interrupt
    ) -> Exchange:
        agree(store, formation, self._description(), interrupted=interrupted)
        plan = Assembly(
            formation=formation,
            config=self._config,
            numel=self._numel(formation.world_size),
            side=self._side(),
            device=self.device,
        )
        try:
            return make_exchange(plan, store, self._graveyard, interrupted=interrupted)
        except Interrupted:
            raise
        except CollectiveError as error:
            raise FormationError(f"generation {formation.generation}: {error}") from error

    def payload_hash(self) -> PayloadHash:
        """Return what this rank would send now, for the others to compare with theirs."""
        dtype = self._wire_dtype()
        return PayloadHash(
            nbytes=self._numel(self._formed.world_size) * dtype.itemsize,
            dtype=str(dtype).removeprefix("torch."),
            signature=self.signature,
        )

    def synchronize(
        self,
        donor: int,
        receivers: Sequence[int],
        extra: State | None = None,
        *,
        interrupted: Interrupt = never,
    ) -> State | None:
        """Give the donor's state to the receivers; every rank of the generation calls it.

        The consensus, the model's averaged and local tensors and ``extra`` are written into the
        receivers, in place where they have storage.

        Args:
            donor: Rank that gives.
            receivers: Ranks that take over.
            extra: On the donor: what else to give, such as the optimizer's state.
            interrupted: Asked while waiting.

        Returns:
            The donor's ``extra`` on receivers, otherwise ``None``.

        Raises:
            Interrupted: ``interrupted()`` became true first.
            FormationError: One of them did not come.
            CollectiveError: The transfer failed.
        """
        formation, number = self._formed, self._transfers
        self._transfers += 1
        party = [donor, *(rank for rank in receivers if rank != donor)]
        if formation.rank not in party:
            return None
        is_donor = formation.rank == donor
        if is_donor and not self._keeps_consensus():
            self.consensus.adopt_model()
        if len(party) == 1:
            return None
        assert self._store is not None
        plan = GroupPlan(
            prefix=formation.prefix(f"state/{number}"),
            rank=party.index(formation.rank),
            size=len(party),
            address=formation.address,
            timeout_s=formation.timeout_s,
        )
        given = self._given(extra) if is_donor else None
        state = hand_over(given, plan, self._store, self._graveyard, interrupted=interrupted)
        if is_donor:
            return None
        return self._received(state)

    def kept(self) -> State:
        """Return all that ranks share, for a time when none of them is left.

        Beside what another rank would be given it says where in the flat buffer each tensor is.
        """
        if not self._keeps_consensus():
            self.consensus.adopt_model()
        return self._given(None) | State(meta={"slots": self.consensus.slots()})

    def take_kept(self, state: State) -> None:
        """Go on from what :meth:`kept` gave, on this rank or another one.

        Raises:
            ConfigError: It belongs to another model or other settings; nothing is changed.
        """
        self._received(state)

    def poll(self) -> Progress:
        """Return how far the average is; without a comm thread this is what moves it."""
        return self._rounds.poll()

    def wait(self, *, interrupted: Interrupt = never, timeout_s: float = 60.0) -> Progress:
        """Poll until the average is over, the time is, or ``interrupted()``."""
        return self._rounds.wait(timeout_s=timeout_s, interrupted=interrupted)

    @property
    def failure(self) -> FlodlError | RuntimeError | None:
        """What went wrong where `poll` says ``FAILED``."""
        return self._rounds.failure

    @property
    def outcome(self) -> Outcome:
        """How the last completed average went, committed or not.

        Raises:
            CollectiveError: There is none yet.
        """
        if self._outcome is None:
            raise CollectiveError("no average was completed yet")
        return self._outcome

    def residual(self) -> Tensor | None:
        """Return a copy of what this rank's part of the averages still owes by rounding.

        It belongs to the generation: `load_residual` takes it on the same rank of one of the same
        size. ``None`` without feedback, and on ranks that fold nothing.
        """
        owed = None if self._rounds.exchange is None else self._rounds.exchange.residual()
        return None if owed is None else owed.clone()

    def load_residual(self, owed: Tensor) -> None:
        """Go on from what `residual` gave in another run.

        Raises:
            CollectiveError: This rank's part has another size, or there is none.
        """
        own = None if self._rounds.exchange is None else self._rounds.exchange.residual()
        if own is None or own.shape != owed.shape:
            held = "none" if own is None else f"{own.numel()} elements"
            raise CollectiveError(
                f"a residual of {owed.numel()} elements for a part that has {held}",
                hint="resume with as many ranks on as many hosts, and the same wire",
            )
        own.copy_(owed)

    def abandon(self) -> int:
        """Leave the generation at once, whatever is in flight.

        Returns:
            The window whose average has arrived by now, which can still be committed; where none
            has, `last_completed`.
        """
        self._rounds.leave()
        return self.outcome.window if self.has_result else self.last_completed

    def close(self) -> None:
        """Leave the generation and end the comm thread; no call may follow.

        Waits a little for groups to let go: torch aborts a process that ends in the middle of it.
        """
        self._rounds.close()
        self._graveyard.wait(_FAREWELL_S)

    @property
    def _formed(self) -> Formation:
        if self._formation is None:
            raise CollectiveError("no generation is formed; call form() first")
        return self._formation

    def _given(self, extra: State | None) -> State:
        state = self.consensus.state().prefixed("consensus/")
        state |= self.consensus.local_parts().prefixed("local/")
        state |= State(meta={"last_completed": self.last_completed})
        return state | (extra or State()).prefixed("extra/")

    def _received(self, state: State) -> State:
        with self._rounds.lock:
            self._drop_result()
            consensus = self.consensus  # asked for again it may take the model's values instead
            consensus.load(state.part("consensus/"))
            consensus.load_local_parts(state.part("local/"))
            consensus.write(is_blended=False)
            self.last_completed = int(cast("int", state.meta["last_completed"]))
        return state.part("extra/")

    @property
    @abstractmethod
    def consensus(self) -> Consensus:
        """What all ranks share after the last completed window."""

    @property
    @abstractmethod
    def has_result(self) -> bool:
        """Whether an average is completed and not committed."""

    @abstractmethod
    def _drop_result(self) -> None:
        """Forget a completed average: this rank takes over another's state."""

    @property
    @abstractmethod
    def signature(self) -> str:
        """Digest of names, shapes and dtypes: equal where models may be averaged."""

    @abstractmethod
    def _numel(self, world_size: int) -> int:
        """Return the length of the flat payload."""

    @abstractmethod
    def _side(self) -> int:
        """Return how many numbers are sent aside."""

    @abstractmethod
    def _wire_dtype(self) -> torch.dtype:
        """Return the dtype that the next payload travels in."""

    @abstractmethod
    def _description(self) -> list[str]:
        """Return a line for each thing that travels."""

    @abstractmethod
    def _keeps_consensus(self) -> bool:
        """Return whether the shared values are the consensus, and not the model's own."""
