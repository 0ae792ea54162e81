"""Handles with move semantics: each call consumes the handle and returns the next one.

Without this, a forgotten result (``b.through(m); b.build()``) would silently build another model.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Concatenate, NoReturn, ParamSpec, Self, TypeVar

from flodl.core.errors import FlowError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flodl.graph.builders.draft import Draft

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound="Handle")


@dataclass(frozen=True, slots=True)
class CallSite:
    """A call of a method, and where it stands."""

    method: str
    file: str
    line: int


class Handle:
    """A draft that can be continued once."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._consumed_by: CallSite | None = None

    def _then(self, draft: Draft) -> Self:
        """Return the next handle of this kind."""
        following = object.__new__(type(self))
        Handle.__init__(following, draft)
        return following

    def _check_unused(self, method: str) -> None:
        if self._consumed_by is not None:
            by = self._consumed_by
            raise FlowError(
                f"{method}: this builder was already consumed by .{by.method}(…) "
                f"at {by.file}:{by.line}",
                hint="each call returns the next builder: chain the calls or keep the result; "
                ".copy() branches on purpose",
            )

    def _consume(self, by: CallSite) -> None:
        self._consumed_by = by


def consuming(method: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
    """Make a method use its handle up; a call that raises leaves it usable."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_unused(name)
        result = method(self, *args, **kwargs)
        self._consume(_caller(name))
        return result

    return call


def _caller(method: str) -> CallSite:
    frame = inspect.currentframe()
    for _ in range(2):  # this function, then the wrapper
        frame = frame.f_back if frame is not None else None
    if frame is None:
        return CallSite(method, "<unknown>", 0)
    return CallSite(method, frame.f_code.co_filename, frame.f_lineno)


class Unfinished(FlowError, AttributeError):
    """A method was called that needs another one before it."""


class Waiting(Handle):
    """A handle of something that is not finished: what ends it is named when it is forgotten."""

    _begun_by: ClassVar[str]
    _ended_by: ClassVar[str]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # what copy, pickle and notebooks look for
            raise AttributeError(name)
        raise Unfinished(
            f"{name}: {self._begun_by}(…) is not finished", hint=f"first call {self._ended_by}"
        )
