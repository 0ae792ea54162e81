"""Loops: a body whose output is its next input."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from flodl.core.errors import FlowError
from flodl.graph.nodes import halt
from flodl.graph.nodes.act import Pondering
from flodl.graph.nodes.base import Blocker, Construct, Writer, call, callee, scratch
from flodl.graph.nodes.hop import has_operators, hop_loop
from flodl.graph.nodes.schema import Schema, among, count, flag, number, optional
from flodl.graph.nodes.traces import OUTPUT, LoopBody, TraceEmit
from flodl.nn.halting import LearnedHalt
from flodl.nn.protocols import wants_reset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flodl.graph.ir import Attr, Node

_logger = logging.getLogger(__name__)


class LoopKind(StrEnum):
    """When a loop ends."""

    FOR = "for"  # after n iterations
    WHILE = "while"  # the condition is asked before each iteration
    UNTIL = "until"  # the condition is asked after each iteration but the last allowed one


class LoopMode(StrEnum):
    """How a conditional loop asks its condition."""

    AUTO = "auto"  # the host reads it
    MASKED = "masked"  # all iterations run, the device keeps what counts
    ACT = "act"  # all iterations run, weighed by the probability of halting
    HOP = "hop"  # torch.while_loop or torch.cond; experimental


class Loop(Construct):
    """A counted, conditional, masked or pondering loop."""

    op = "loop"
    schema: ClassVar[Schema] = {
        "kind": among(*LoopKind),
        "n": count,
        "mode": among(*LoopMode),
        "halt": among("batch", "sample"),
        "reduce": among(*halt.Reduce),
        "eps": optional(number),
        "trace": flag,
        "detach_every": optional(count),
        "remat": flag,
    }

    def slots(self, attrs: Mapping[str, Attr]) -> list[str]:
        """Return the body, and the condition of a loop that has one."""
        return ["body"] if attrs["kind"] == LoopKind.FOR else ["body", "cond"]

    def check(self, node: Node, modules: Mapping[str, nn.Module]) -> None:
        """Say when a halt that is meant to learn cannot."""
        learns = isinstance(modules.get("cond"), LearnedHalt)
        if learns and node.attr("mode") != LoopMode.ACT:
            _logger.info(
                "%s: a decision by threshold passes no gradient to LearnedHalt, so it does not "
                'learn here; until_cond(…, mode="act") trains it',
                node.id,
            )
        if isinstance(modules["body"], LoopBody) and OUTPUT in modules["body"].emits:
            raise FlowError(f"{node.id}: emits of {type(modules['body']).__name__} has no name")
        if node.attr("mode") == LoopMode.HOP:
            _check_hop(node, modules["body"])

    def doubts(self, node: Node, modules: Mapping[str, nn.Module]) -> Sequence[str]:
        """Warn of side effects of iterations that only run to be thrown away."""
        if node.attr("mode") in {LoopMode.AUTO, LoopMode.HOP}:
            return ()
        kinds = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)  # noqa: SLF001
        found = {
            type(module).__name__
            for module in modules["body"].modules()
            if isinstance(module, kinds)
        }
        return [
            f"{node.id}: {name} in the body also runs in iterations after the halt; its side "
            f"effects differ from mode='auto'"
            for name in sorted(found)
        ]

    def facts(
        self,
        node: Node,  # noqa: ARG002
        modules: Mapping[str, nn.Module],
    ) -> dict[str, Attr]:
        """Return which modules of the body to reset, and whether it publishes."""
        body = modules["body"]
        return {"resets": tuple(_resettable(body)), "emits": isinstance(body, LoopBody)}

    def blocker(self, node: Node, modules: Mapping[str, nn.Module]) -> Blocker | None:
        """Return a blocker for a condition that the host reads."""
        if node.attr("remat") and isinstance(modules["body"], LoopBody):
            return Blocker("loop", "publishes traces under remat", "leave remat out")
        mode = node.attr("mode")
        if node.attr("kind") == LoopKind.FOR or mode in {LoopMode.MASKED, LoopMode.ACT}:
            return None
        reason = "halt condition read on host"
        if mode == LoopMode.HOP:
            reason = "runs through torch.while_loop, experimental"
        return Blocker(f"{node.attr('kind')}_cond", reason, 'use mode="masked"')

    def emit(self, node: Node, out: Writer) -> None:
        """Write the loop."""
        writing = _Writing(node, out)
        for path in writing.resets:
            steps = "".join(f"._modules[{part!r}]" for part in path.split(".") if part)
            out.line(f"{out.module(node, 'body')}{steps}.reset()")
        out.line(f"{writing.state} = {out.value(node.inputs[0])}")
        if writing.has_record:
            out.line(f"{writing.record} = {out.bind('traces', TraceEmit)}()")
            out.report(node, writing.record)
        match node.attr("mode"):
            case LoopMode.MASKED:
                writing.masked()
            case LoopMode.ACT:
                writing.pondering()
            case _ if node.attr("kind") == LoopKind.FOR:
                writing.counted()
            case _ if out.outlining:
                writing.once()
            case mode if mode == LoopMode.HOP or out.exporting:
                writing.operator()
            case _:
                writing.conditional()


@dataclass(slots=True)
class _Writing:
    """The statements of one loop."""

    node: Node
    out: Writer

    @property
    def state(self) -> str:
        return self.out.result(self.node)

    @property
    def record(self) -> str:
        return scratch(self.node, "traces")

    @property
    def step(self) -> str:
        return scratch(self.node, "step")

    @property
    def most(self) -> int:
        count = self.node.attr("n")
        assert isinstance(count, int), "the builder gives every loop a number"
        return count

    @property
    def resets(self) -> tuple[str, ...]:
        paths = self.out.facts(self.node)["resets"]
        assert isinstance(paths, tuple), "facts() made it"
        return tuple(map(str, paths))

    @property
    def has_record(self) -> bool:
        counted = self.node.attr("kind") == LoopKind.FOR
        return not counted or bool(self.node.attr("trace")) or self._emits

    @property
    def _emits(self) -> bool:
        return bool(self.out.facts(self.node)["emits"])

    def counted(self) -> None:
        with self.out.block(f"for {self.step} in range({self.most}):"):
            if self.has_record:
                self.out.line(f"{self.record}.begin()")
            self._advance(self._body())

    def once(self) -> None:
        self.out.line(f"{self.record}.begin()")
        self._advance_once()

    def conditional(self) -> None:
        until = self.node.attr("kind") == LoopKind.UNTIL
        with self.out.block(f"for {self.step} in range({self.most}):"):
            if not until:
                self._leave_if(self._halts())
            self.out.line(f"{self.record}.begin()")
            self._advance(self._body())
            if until and self.most > 1:
                self._leave_if(f"{self.step} < {self.most - 1} and {self._halts()}")

    def operator(self) -> None:
        run = self.out.bind("hop_loop", hop_loop)
        body, extra = callee(self.out, self.node, "body")
        arguments = ", ".join(
            [
                f"lambda state: {body}({', '.join(['state', *extra])})",
                self.out.module(self.node, "cond"),
                self.state,
                str(self.most),
                repr(self.node.attr("reduce")),
                str(self.node.attr("kind") == LoopKind.UNTIL),
            ]
        )
        count = scratch(self.node, "count")
        self.out.line(f"{self.state}, {count} = {run}({arguments})")
        self.out.line(f"{self.record}.ran({count})")

    def masked(self) -> None:
        alive, by_row = scratch(self.node, "alive"), self.node.attr("halt") == "sample"
        start = (
            self.out.bind("every_row", halt.every_row)
            if by_row
            else self.out.bind("everywhere", halt.everywhere)
        )
        check = (
            self.out.bind("rows_alive", halt.rows_alive)
            if by_row
            else self.out.bind("still_alive", halt.still_alive)
        )
        until = self.node.attr("kind") == LoopKind.UNTIL
        asked = f"{alive} = {check}({alive}, {self._condition()}, {self.node.attr('reduce')!r})"
        self.out.line(f"{alive} = {start}({self.state})")
        with self.out.block(f"for {self.step} in range({self.most}):"):
            if not until:
                self.out.line(asked)
            self.out.line(f"{self.record}.begin_if({alive})")
            take = self.out.bind("take_alive", halt.take_alive)
            self._advance(f"{take}({alive}, {self._body()}, {self.state})")
            if until and self.most > 1:
                with self.out.block(f"if {self.step} < {self.most - 1}:"):
                    self.out.line(asked)

    def pondering(self) -> None:
        sums = scratch(self.node, "sums")
        make = self.out.bind("pondering", Pondering)
        self.out.line(f"{sums} = {make}({self.state}, {self.node.attr('eps')!r})")
        with self.out.block(f"for {self.step} in range({self.most}):"):
            self.out.line(f"{self.record}.begin_if({sums}.alive)")
            self._advance(f"{sums}.advance({self._body()})")
            last = f"{self.step} == {self.most - 1}"
            self.out.line(f"{sums}.weigh({self._condition()}, {self.record}, {last})")
        self.out.line(f"{self.state} = {sums}.output({self.record})")

    def _advance_once(self) -> None:
        self.out.line(f"{self.state} = {self._body()}")

    def _advance(self, expression: str) -> None:
        every = self.node.attr("detach_every")
        if every is not None:
            with self.out.block(f"if {self.step} and {self.step} % {every} == 0:"):
                self.out.line(f"{self.state} = {self.state}.detach()")
        self.out.line(f"{self.state} = {expression}")
        if self.node.attr("trace"):
            self.out.line(f"{self.record}.keep({OUTPUT!r}, {self.state})")

    def _body(self) -> str:
        function, extra = callee(self.out, self.node, "body")
        if self._emits:
            extra = extra or ["refs={}"]
            extra = [*extra, f"emit={self.record}"]
        arguments = ", ".join([self.state, *extra])
        if self.node.attr("remat"):
            return f"{self.out.bind('remat', halt.remat)}({function}, {arguments})"
        return f"{function}({arguments})"

    def _condition(self) -> str:
        return call(self.out, self.node, self.state, slot="cond", takes_refs=False)

    def _halts(self) -> str:
        name = self.out.bind("halts", halt.halts)
        warned = "self.flodl_memory.warned"
        reduce = self.node.attr("reduce")
        return f"{name}({self._condition()}, {reduce!r}, {warned}, {self.node.id!r})"

    def _leave_if(self, condition: str) -> None:
        with self.out.block(f"if {condition}:"):
            self.out.line("break")


def _check_hop(node: Node, body: nn.Module) -> None:
    if not has_operators():
        raise FlowError(
            f"{node.id}: mode='hop' needs torch.while_loop, which torch {torch.__version__} lacks",
            hint="use mode='masked'",
        )
    if isinstance(body, LoopBody):
        raise FlowError(
            f"{node.id}: mode='hop' runs as one operator, and {type(body).__name__} is a LoopBody, "
            "which publishes values of each iteration",
            hint="use mode='masked', or a plain module",
        )


def _resettable(body: nn.Module, path: str = "") -> list[str]:
    """Return the paths, in the body, of the outermost modules that reset themselves."""
    if wants_reset(body):
        return [path]
    return [
        found
        for name, child in body.named_children()
        for found in _resettable(child, f"{path}.{name}" if path else name)
    ]
