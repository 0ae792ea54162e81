"""One call before a graph's own loop: devices found, replicas made, optimizers set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import nn

from flodl.core.errors import ConfigError
from flodl.distributed.replica.config import DdpConfig
from flodl.graph import Graph
from flodl.nn import HasGraph

if TYPE_CHECKING:
    import torch

    from flodl.graph.stepping.protocols import OptimizerFactory

GraphFactory = Callable[["torch.device"], Graph]
HeadFactory = Callable[["torch.device"], HasGraph]


class Setup:
    """The calls of ``Trainer`` for loops that are the user's own."""

    @staticmethod
    def setup(model: Graph, builder: GraphFactory, optimizer: OptimizerFactory) -> None:
        """Prepare a graph for its own loop on all devices there are, the same loop on one or many.

        Args:
            model: The graph.
            builder: ``device -> graph`` for a replica; never called on one device.
            optimizer: ``parameters -> optimizer``, called for each replica.

        Raises:
            ConfigError: ``model`` is no graph, or ``builder`` gives something else.
            FormationError: Graphs differ, or a process did not come.
            StepContractError: The graph was set up before.

        Examples:
            >>> import torch
            >>> from flodl import FlowBuilder, Trainer
            >>> build = lambda device: FlowBuilder(torch.nn.Linear(2, 1)).build().to(device)
            >>> model = build("cpu")
            >>> Trainer.setup(model, build, lambda ps: torch.optim.SGD(ps, lr=0.1))
            >>> model(torch.ones(4, 2)).mean().backward()
            >>> model.step()
            >>> model.training_step
            1
        """
        Setup.setup_with(model, builder, optimizer, DdpConfig())

    @staticmethod
    def setup_with(
        model: Graph, builder: GraphFactory, optimizer: OptimizerFactory, config: DdpConfig
    ) -> None:
        """Do what ``setup`` does, with settings of the exchange between devices.

        ElChe is on where devices differ, and where ``config`` has a hint or a largest anchor.

        Raises:
            ConfigError: As ``setup``, and for a setting that does not fit.
            FormationError: As ``setup``.
            StepContractError: As ``setup``.
        """
        if not isinstance(model, Graph):
            raise ConfigError(
                f"Trainer.setup of a {type(model).__name__}: expected a Graph",
                hint="use Trainer.setup_head for something that has a graph",
            )
        model.auto_distribute(builder)
        is_asked = config.max_anchor is not None or config.speed_hint is not None
        if not is_asked and not model.has_el_che:
            config = replace(config, max_anchor=0)
        model.configure_el_che(config)
        model.set_optimizer(optimizer)
        model.train()

    @staticmethod
    def setup_head(head: HasGraph, head_factory: HeadFactory, optimizer: OptimizerFactory) -> None:
        """Do what ``setup`` does for the graph of a task head, or of anything that has one.

        Raises:
            ConfigError: As ``setup``; also where a head has parameters outside its graph.
            FormationError: As ``setup``.
            StepContractError: As ``setup``.
        """
        Setup.setup_head_with(head, head_factory, optimizer, DdpConfig())

    @staticmethod
    def setup_head_with(
        head: HasGraph,
        head_factory: HeadFactory,
        optimizer: OptimizerFactory,
        config: DdpConfig,
    ) -> None:
        """Do what ``setup_head`` does, with settings of the exchange between devices.

        Raises:
            ConfigError: As ``setup_head``.
            FormationError: As ``setup``.
            StepContractError: As ``setup``.
        """
        graph = _graph_of(head)
        Setup.setup_with(graph, lambda device: _graph_of(head_factory(device)), optimizer, config)
        if isinstance(head, nn.Module):
            head.train()


def _graph_of(head: HasGraph) -> Graph:
    if not isinstance(head, HasGraph):
        raise ConfigError(f"a head of type {type(head).__name__} has no graph")
    graph = head.graph
    if isinstance(head, nn.Module):
        inside = {id(parameter) for parameter in graph.parameters()}
        outside = [name for name, one in head.named_parameters() if id(one) not in inside]
        if outside:
            raise ConfigError(
                f"parameters of {type(head).__name__} are not in its graph: "
                f"{', '.join(outside)}; its loop would not train them",
                hint="make them part of the graph",
            )
    if not isinstance(graph, Graph):
        raise ConfigError(f"the graph of {type(head).__name__} is a {type(graph).__name__}")
    return graph
