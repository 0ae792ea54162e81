"""LoopBuilder: how often, and until when, a body runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from flodl.core.errors import FlowError
from flodl.graph.builders.draft import Draft, Target
from flodl.graph.builders.handle import Handle, Waiting, consuming
from flodl.graph.builders.modules import as_module
from flodl.graph.naming import check_count, one_of
from flodl.graph.nodes.halt import Reduce
from flodl.graph.nodes.loop import LoopKind, LoopMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from flodl.graph.builders.modules import Step
    from flodl.graph.ir import Attr


F = TypeVar("F", bound=Handle)
"""The builder that goes on afterwards."""


class LoopBuilder(Waiting, Generic[F]):
    """A loop body that waits to be told when it ends; made by ``FlowBuilder.loop_body``.

    The output of an iteration is the input of the next. References bound with ``using`` after
    the loop go to the body, in every iteration. Before a loop begins, ``reset()`` is called on
    what declares that it keeps state: ``LoopBody``, graphs, modules with ``flodl_stateful``.

    Options of all loops:

    - ``trace``: keep the output of each iteration under the loop's tag, for ``graph.traces``.
    - ``detach_every``: cut gradients after every that many iterations.
    - ``remat``: compute an iteration again in the backward pass instead of keeping its values.
    """

    _begun_by = "loop_body"
    _ended_by = ".for_n(n), .while_cond(cond, max_iter) or .until_cond(cond, max_iter)"

    def __init__(
        self, draft: Draft, body: nn.Module, key: str | None, resume: Callable[[Draft], F]
    ) -> None:
        super().__init__(draft)
        self._body = body
        self._key = key
        self._resume = resume

    @consuming
    def for_n(
        self,
        n: int,
        *,
        trace: bool = False,
        detach_every: int | None = None,
        remat: bool = False,
    ) -> F:
        """Run the body exactly ``n`` times, 1 or more."""
        options = _options("for_n", n, trace, detach_every, remat)
        return self._finish({"body": self._body}, kind=str(LoopKind.FOR), **options)

    @consuming
    def while_cond(
        self,
        cond: Step,
        max_iter: int,
        *,
        mode: Literal["auto", "masked", "hop"] = "auto",
        halt: Literal["batch", "sample"] = "batch",
        reduce: Literal["all", "any", "mean"] = "all",
        trace: bool = False,
        detach_every: int | None = None,
        remat: bool = False,
    ) -> F:
        """Run the body while not halted: a positive output of ``cond`` means HALT.

        ``cond`` is asked before each iteration, so the body may never run; then the output is
        the input. Reaching ``max_iter`` is no error.

        Args:
            cond: Module or function of the state. Positive means halt; NaN halts, with a warning.
            max_iter: The most iterations.
            mode: ``"auto"`` reads the condition on the host each time. ``"masked"`` always runs
                ``max_iter`` iterations and keeps what counts, without reading: it compiles, and
                can be captured; values and gradients are the same for a deterministic body.
                ``"hop"``, experimental, compiles to ``torch.while_loop``, or with gradients to
                ``torch.cond`` for each iteration; it keeps no traces.
            halt: With ``"sample"`` (masked only) each row of the batch halts for itself.
            reduce: When several elements of the condition halt.
            trace: See the class.
            detach_every: See the class.
            remat: See the class.
        """
        return self._conditional(
            LoopKind.WHILE,
            cond,
            {"mode": mode, "halt": halt, "reduce": reduce, "eps": None},
            _options("while_cond", max_iter, trace, detach_every, remat),
        )

    @consuming
    def until_cond(  # noqa: PLR0913 - the published options
        self,
        cond: Step,
        max_iter: int,
        *,
        mode: Literal["auto", "masked", "act", "hop"] = "auto",
        halt: Literal["batch", "sample"] = "batch",
        reduce: Literal["all", "any", "mean"] = "all",
        eps: float = 0.01,
        trace: bool = False,
        detach_every: int | None = None,
        remat: bool = False,
    ) -> F:
        """Run the body until halted: a positive output of ``cond`` means HALT.

        ``cond`` is asked after each iteration but the last allowed one, so the body runs once at
        least. Reaching ``max_iter`` is no error.

        Args:
            cond: Module or function of the state. Positive means halt; NaN halts, with a warning.
            max_iter: The most iterations.
            mode: As for ``while_cond``; or ``"act"``, adaptive computation time: the condition is
                a halting logit a sample, the output is weighed by it, gradients reach it, and the
                traces ``halt_prob`` and ``ponder_cost`` are published.
            halt: With ``"sample"`` (masked only) each row of the batch halts for itself.
            reduce: When several elements of the condition halt.
            eps: In act mode a sample halts when its probabilities reach ``1 - eps``.
            trace: See the class.
            detach_every: See the class.
            remat: See the class.
        """
        if not 0 < eps < 1:
            raise FlowError(f"until_cond(eps={eps}): it must be between 0 and 1")
        return self._conditional(
            LoopKind.UNTIL,
            cond,
            {"mode": mode, "halt": halt, "reduce": reduce, "eps": eps if mode == "act" else None},
            _options("until_cond", max_iter, trace, detach_every, remat),
        )

    def _conditional(
        self, kind: LoopKind, cond: Step, asking: dict[str, Any], options: dict[str, Any]
    ) -> F:
        call = f"{kind}_cond"
        legal = set(LoopMode) - ({LoopMode.ACT} if kind is LoopKind.WHILE else set())
        mode = one_of(asking["mode"], sorted(legal), f"{call}(mode=)")
        halt = one_of(asking["halt"], ["batch", "sample"], f"{call}(halt=)")
        one_of(asking["reduce"], list(Reduce), f"{call}(reduce=)")
        if halt == "sample" and mode != LoopMode.MASKED:
            raise FlowError(
                f"{call}(halt='sample', mode={mode!r}): rows halt for themselves only when masked",
                hint="add mode='masked'",
            )
        given = [name for name in ("trace", "detach_every", "remat") if options[name]]
        if mode == LoopMode.HOP and given:
            raise FlowError(
                f"{call}(mode='hop', {given[0]}={options[given[0]]!r}): one operator has no "
                "iterations to look into",
                hint="use mode='masked'",
            )
        modules = {"body": self._body, "cond": as_module(cond, call)}
        return self._finish(modules, kind=str(kind), **(asking | options))

    def _finish(self, modules: dict[str, nn.Module], **attrs: Attr) -> F:
        draft = self._draft.copy()
        source = draft.stream("loop_body")
        unasked: dict[str, Attr] = {"mode": "auto", "halt": "batch", "reduce": "all", "eps": None}
        port = draft.add_node("loop", "loop", (source,), modules=modules, attrs=unasked | attrs)
        draft.give_key(port.node, self._key, "loop_body")
        draft.move_to([port], [Target(port.node, "body")])
        return self._resume(draft)


def _options(
    call: str, n: int, trace: bool, detach_every: int | None, remat: bool
) -> dict[str, Attr]:
    check_count(n, f"{call}({n!r})", "iterations")
    if detach_every is not None:
        check_count(detach_every, f"{call}(detach_every={detach_every!r})", "iterations")
    return {"n": n, "trace": trace, "detach_every": detach_every, "remat": remat}
