"""Part of FlowBuilder: names of positions, references to them, and the graph's face."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from flodl.core.errors import FlowError
from flodl.graph.builders.handle import Handle, consuming
from flodl.graph.naming import check_argument, check_name, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


class Names(Handle):
    """Tags, references, inputs and outputs."""

    @consuming
    def tag(self, name: str) -> Self:
        """Name the stream here, or the output of the ``fork`` just before."""
        draft = self._draft.copy()
        call = f"tag({name!r})"
        if draft.fork is None and len(draft.streams) > 1:
            raise FlowError(
                f"{call}: {len(draft.streams)} streams are open",
                hint="name them together with tag_group(), or split({'a': …, 'b': …})",
            )
        draft.add_tag(name, draft.fork or draft.streams[0], call)
        draft.fork = None
        return self._then(draft)

    @consuming
    def tag_group(self, name: str) -> Self:
        """Name the open streams ``name_0``, ``name_1``, …; observation takes the group's name."""
        draft = self._draft.copy()
        call = f"tag_group({name!r})"
        check_name(name, call)
        if len(draft.streams) < 2:
            raise FlowError(f"{call} needs two streams or more, one is open", hint="use tag()")
        if name in draft.groups or name in draft.tags:
            raise FlowError(f"{call}: that name is taken", hint="choose another")
        members = [f"{name}_{index}" for index in range(len(draft.streams))]
        for member, port in zip(members, draft.streams, strict=True):
            draft.add_tag(member, port, call)
        draft.groups[name] = tuple(members)
        return self._then(draft)

    @consuming
    def using(self, /, *names: str, **renamed: str) -> Self:
        """Give the last step the values of tags.

        A tag declared before is a wire within the call. A tag declared later, or on this very
        step, carries state: the step gets the value from the end of the previous call, at first
        zeros shaped like its stream (see ``state``). How a module takes references: as
        ``refs=`` dictionary, as keywords of these names, through ``forward_named``, or, for a
        graph, as its auxiliary inputs.

        Args:
            names: Tags, each passed under its own name.
            renamed: ``keyword="tag"`` passes a tag under another name.
        """
        draft = self._draft.copy()
        pairs = [(name, name) for name in names] + list(renamed.items())
        if not pairs:
            raise FlowError("using() needs a name", hint="using('memory')")
        if not draft.targets:
            raise FlowError(
                f"using({', '.join(map(repr, names))}): no step here takes references; "
                "a merge or the bare input does not",
                hint="put using() right after the step that reads them",
            )
        for keyword, name in pairs:
            call = f"using({name!r})"
            check_name(name, call)
            check_name(keyword, call)
            for target in draft.targets:
                draft.bind(target, keyword, name, call)
        return self._then(draft)

    @consuming
    def state(
        self,
        name: str,
        init: Sequence[int] | torch.Tensor | Callable[[torch.Tensor], torch.Tensor],
    ) -> Self:
        """Say how the state of a forward reference begins, before anything was stored.

        Args:
            name: The reference.
            init: A shape, filled with zeros, in which -1 is the batch size; a tensor; or a
                function of the reading step's stream.
        """
        draft = self._draft.copy()
        check_name(name, "state")
        if name in draft.starts:
            raise FlowError(f"state({name!r}): it already has a start")
        if not _is_start(init):
            raise FlowError(
                f"state({name!r}, {init!r}): a state begins with a shape, a tensor or a function",
                hint="a shape may have -1 for the batch size: state('h', (-1, 16))",
            )
        draft.starts[name] = tuple(init) if isinstance(init, Sequence) else init
        return self._then(draft)

    @consuming
    def input(self, *names: str) -> Self:
        """Declare further inputs of the graph, each tagged with its name; the stream stays."""
        draft = self._draft.copy()
        for name in names:
            call = f"input({name!r})"
            check_argument(name, call)
            if name in draft.inputs or name in draft.readers:
                reason = "an input" if name in draft.inputs else "a reference before it"
                raise FlowError(
                    f"{call}: there is already {reason} of that name",
                    hint="declare inputs before they are used, each once",
                )
            draft.counter += 1
            draft.add_tag(name, draft.add_input(name, draft.counter), call)
        return self._then(draft)

    @consuming
    def output(self, *tags: str) -> Self:
        """Make a call return a dictionary of these tags, in this order, instead of the stream."""
        draft = self._draft.copy()
        for name in tags:
            if name not in draft.tags:
                raise FlowError(f"output({name!r}): no such tag", hint=suggestion(name, draft.tags))
        if not tags or len(set(tags)) != len(tags):
            raise FlowError(f"output{tags!r}: needs tags, each once")
        draft.outputs = tags
        return self._then(draft)

    @consuming
    def internal(self, tag: str, on: bool = True) -> Self:
        """Hide a tag from parent graphs, or show one that begins with an underscore."""
        draft = self._draft.copy()
        draft.internal[check_name(tag, "internal")] = on
        return self._then(draft)

    @consuming
    def label(self, name: str) -> Self:
        """Give the graph the name under which a parent graph addresses it."""
        draft = self._draft.copy()
        draft.label = check_name(name, f"label({name!r})")
        return self._then(draft)


def _is_start(init: object) -> bool:
    if isinstance(init, Sequence):
        sizes = [size for size in init if isinstance(size, int) and not isinstance(size, bool)]
        return len(sizes) == len(init) and all(size >= -1 for size in sizes)
    return callable(init) or hasattr(init, "new_zeros")  # a tensor, without loading torch
