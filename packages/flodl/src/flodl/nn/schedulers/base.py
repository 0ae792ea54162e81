"""What every scheduler shares: the protocol, the checks, and turning into a plain map and back."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from flodl.core.errors import ConfigError


@runtime_checkable
class Scheduler(Protocol):
    """A learning rate as a function of the step; it owns no optimizer."""

    def lr(self, step: int) -> float:
        """Return the learning rate of optimizer step ``step``, counted from 0."""
        ...


class Schedule(ABC):
    """Base of flodl's own schedulers."""

    _types: ClassVar[dict[str, type[Schedule]]] = {}
    state_kind: ClassVar[str] = "scheduler"
    is_reactive: bool = False
    """Whether the rate follows observed metrics, so that it cannot be tabulated ahead."""

    def __init_subclass__(cls) -> None:
        Schedule._types[cls.__name__] = cls

    @abstractmethod
    def _rate(self, step: int) -> float:
        """Return the rate of a step that is not negative."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a map of plain values from which ``from_dict`` makes an equal one."""

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return the scheduler that ``to_dict`` described.

        Raises:
            ValueError: There is no such type of scheduler, or its values are out of range.
            TypeError: An argument is missing or unknown, or it is no scheduler of this class.
        """
        values = dict(plain)
        name = values.pop("type", None)
        kind = cls._types.get(name) if isinstance(name, str) else None
        if kind is None:
            known = ", ".join(sorted(Schedule._types))
            raise ValueError(f"no scheduler of type {name!r}; there are {known}")
        if not issubclass(kind, cls):
            raise TypeError(f"{cls.__name__}.from_dict: the values are those of a {name}")
        return kind(**kind.revived(values))

    @classmethod
    def revived(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with schedulers in place of their plain forms."""
        return values

    def lr(self, step: int) -> float:
        """Return the learning rate of optimizer step ``step``, counted from 0.

        Raises:
            ValueError: ``step`` is negative.
        """
        if step < 0:
            raise ValueError(f"{type(self).__name__}.lr({step}): steps are counted from 0")
        return self._rate(step)

    def observe(self, metric: float) -> float:
        """Tell a metric to the plateau scheduler within, and return its learning rate.

        Raises:
            TypeError: There is none.
        """
        raise TypeError(
            f"{type(self).__name__}.observe({metric}): its rate depends on the step alone; "
            "only PlateauScheduler, and schedulers around one, observe metrics"
        )

    def __mul__(self, factor: float) -> ScaledScheduler:
        return ScaledScheduler(self, factor)

    __rmul__ = __mul__

    def state_dict(self) -> dict[str, Any]:
        """Return what a state file holds: the settings, and what was observed."""
        return {"settings": self.to_dict(), "observed": self.observed()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as the scheduler did whose state this is.

        Raises:
            ConfigError: That scheduler had other settings; nothing is changed.
        """
        own = self.to_dict()
        if state.get("settings") != own:
            raise ConfigError(
                f"the state belongs to the scheduler {state.get('settings')}, this one is {own}",
                hint="build the same scheduler, or leave its state out",
            )
        self.restore(state["observed"])

    def observed(self) -> Any:
        """Return the part of the state that changes while training; pure schedulers have none."""
        return None

    def restore(self, observed: Any) -> None:
        """Take over what ``observed`` returned."""
        if observed is not None:
            raise ValueError(
                f"{type(self).__name__} observes nothing, its state holds {observed!r}"
            )


def check_rate(owner: object, **rates: float) -> None:
    """Refuse learning rates that are negative or not finite."""
    for name, value in rates.items():
        if not 0 <= value < math.inf:
            raise ValueError(
                f"{type(owner).__name__}({name}={value!r}): must be finite and not negative"
            )


def check_count(owner: object, *, least: int = 1, **counts: int) -> None:
    """Refuse step counts that are no integers or too small."""
    for name, value in counts.items():
        if type(value) is not int or value < least:
            raise ValueError(
                f"{type(owner).__name__}({name}={value!r}): must be an integer of at least {least}"
            )


def check_gamma(owner: object, gamma: float) -> None:
    """Refuse decay factors that are not positive."""
    if not 0 < gamma < math.inf:
        raise ValueError(f"{type(owner).__name__}(gamma={gamma!r}): must be finite and positive")


class PureSchedule(Schedule):
    """Base of the schedulers that are frozen dataclasses of plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Return a map of plain values from which ``from_dict`` makes an equal one."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type] # every subclass is a dataclass
        plain = {field.name: getattr(self, field.name) for field in fields}
        return {"type": type(self).__name__} | {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in plain.items()
        }


class WrappingSchedule(Schedule):
    """Base of the schedulers around one ``inner``, which may be any object with ``lr(step)``."""

    inner: Scheduler

    @property
    def is_reactive(self) -> bool:  # type: ignore[override] # decided by what is inside
        """Whether a plateau scheduler is inside."""
        return is_reactive(self.inner)

    def observe(self, metric: float) -> float:
        """Tell ``inner`` a metric, and return its rate from now on."""
        if isinstance(self.inner, Schedule):
            return self.inner.observe(metric)
        return super().observe(metric)

    def to_dict(self) -> dict[str, Any]:
        """Return a map of plain values from which ``from_dict`` makes an equal one."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type] # every subclass is a dataclass
        plain = {field.name: getattr(self, field.name) for field in fields}
        return {"type": type(self).__name__} | plain | {"inner": plain_form(self.inner)}

    @classmethod
    def revived(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with schedulers in place of their plain forms."""
        return values | {"inner": Schedule.from_dict(values["inner"])}

    def observed(self) -> Any:
        """Return what the inner scheduler has observed."""
        return observed_by(self.inner)

    def restore(self, observed: Any) -> None:
        """Take over what ``observed`` returned."""
        restore_observed(self.inner, observed)


@dataclasses.dataclass(frozen=True)
class ScaledScheduler(WrappingSchedule):
    """``inner`` times a factor; also written ``inner * factor``."""

    inner: Scheduler
    factor: float

    def __post_init__(self) -> None:
        check_scheduler(self, self.inner)
        check_rate(self, factor=self.factor)

    def _rate(self, step: int) -> float:
        return self.inner.lr(step) * self.factor

    def observe(self, metric: float) -> float:
        """Tell ``inner`` a metric, and return the scaled rate from now on."""
        return super().observe(metric) * self.factor


def check_scheduler(owner: object, inner: object) -> None:
    """Refuse what has no ``lr`` method."""
    if not isinstance(inner, Scheduler):
        raise TypeError(f"{type(owner).__name__}({inner!r}): must have a method lr(step) -> float")


def is_reactive(scheduler: Scheduler) -> bool:
    """Return whether a scheduler's rate follows observed metrics."""
    return bool(getattr(scheduler, "is_reactive", False))


def plain_form(scheduler: Scheduler) -> dict[str, Any]:
    """Return ``to_dict`` of a scheduler of flodl; others have no plain form."""
    if not isinstance(scheduler, Schedule):
        raise TypeError(
            f"{type(scheduler).__name__} is no scheduler of flodl and has no form of plain values"
        )
    return scheduler.to_dict()


def observed_by(scheduler: Scheduler) -> Any:
    """Return what a scheduler has observed so far."""
    return scheduler.observed() if isinstance(scheduler, Schedule) else None


def restore_observed(scheduler: Scheduler, observed: Any) -> None:
    """Make a scheduler go on from what another one of the same settings had observed."""
    if isinstance(scheduler, Schedule):
        scheduler.restore(observed)
