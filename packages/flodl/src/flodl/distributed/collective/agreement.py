"""Ranks agree on what they would send each other before any collective starts."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from datetime import timedelta

from torch._C._distributed_c10d import Store

from flodl.core.errors import FormationError
from flodl.distributed.collective.errors import CollectiveError, Interrupted, PayloadMismatchError
from flodl.distributed.collective.formation import Formation
from flodl.distributed.collective.group import GroupPlan
from flodl.distributed.collective.patience import Interrupt, call_patiently

__all__ = ["agree", "compare", "first_difference", "gather_descriptions"]


def agree(
    store: Store, formation: Formation, description: Sequence[str], *, interrupted: Interrupt
) -> None:
    """Compare this rank's payload, a line for each tensor, with that of the first to come.

    Raises:
        Interrupted: ``interrupted()`` became true first.
        PayloadMismatchError: They differ; the message names the first difference.
        FormationError: The store does not answer.
    """
    try:
        call_patiently(
            lambda: compare(store, formation.prefix("payload"), description, formation.timeout_s),
            what="agree",
            timeout_s=formation.timeout_s,
            interrupted=interrupted,
        )
    except Interrupted:
        raise
    except (RuntimeError, CollectiveError) as error:
        raise FormationError(f"generation {formation.generation}: {error}") from error


def compare(store: Store, prefix: str, description: Sequence[str], timeout_s: float) -> None:
    """Write a description under ``prefix``, or compare it with the one that is there; blocks.

    Raises:
        PayloadMismatchError: They differ.
    """
    text = "\n".join(description)
    digest = hashlib.sha256(text.encode()).hexdigest()
    if store.add(f"{prefix}/writers", 1) == 1:
        store.set(f"{prefix}/text", text)
        store.set(f"{prefix}/digest", digest)
        return
    store.wait([f"{prefix}/digest"], timedelta(seconds=timeout_s))
    if store.get(f"{prefix}/digest").decode() == digest:
        return
    theirs = store.get(f"{prefix}/text").decode().splitlines()
    mine, other = first_difference(description, theirs)
    raise PayloadMismatchError(
        f"this rank would send {mine} where another sends {other}",
        hint="all ranks must build the same model, with the same parameters frozen",
    )


def first_difference(one: Sequence[str], other: Sequence[str]) -> tuple[str, str]:
    """Return the first pair of lines that differ; ``"nothing"`` stands for one that is missing."""
    pairs = itertools.zip_longest(one, other, fillvalue="nothing")
    return next(pair for pair in pairs if pair[0] != pair[1])


def gather_descriptions(
    store: Store, plan: GroupPlan, description: Sequence[str]
) -> list[list[str]]:
    """Return the descriptions of all ranks, so that all see the same difference; blocks.

    Raises:
        FormationError: A rank did not come in time.
    """
    keys = [f"{plan.prefix}/description/{rank}" for rank in range(plan.size)]
    store.set(keys[plan.rank], "\n".join(description))
    try:
        store.wait(keys, timedelta(seconds=plan.timeout_s))
    except (RuntimeError, CollectiveError) as error:
        raise FormationError(
            f"rank {plan.rank}: not all of {plan.size} ranks came within {plan.timeout_s:g} s"
        ) from error
    return [store.get(key).decode().splitlines() for key in keys]
