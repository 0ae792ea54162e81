"""Part of Graph: pictures, tables, curves, and how a notebook shows it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Literal

from flodl.checkpoint import write_atomically
from flodl.core.errors import NoDataError
from flodl.graph.blockers import blockers
from flodl.graph.introspection import count_parameters
from flodl.graph.observe import Metrics, Timing
from flodl.graph.paths import children_of
from flodl.graph.viz.curves import log_lines, page, table
from flodl.graph.viz.dot import dot_text
from flodl.graph.viz.graphviz import graphviz_svg, has_graphviz
from flodl.graph.viz.heat import heat_fills
from flodl.graph.viz.scene import scene_of
from flodl.graph.viz.summary import Summary, summarize
from flodl.graph.viz.svg import svg_text
from flodl.graph.viz.text import count_text, time_text
from flodl.graph.viz.tree import param_table, tree_text

if TYPE_CHECKING:
    from collections.abc import Iterable

Path = str | os.PathLike[str]
Engine = Literal["auto", "builtin", "dot"]


class Drawing(Metrics, Timing):
    """Shows the graph. Files are replaced in one step."""

    # ------------------------------------------------------------- the architecture

    def dot(self, *, expand: int = 0) -> str:
        """Return the graph as DOT text, the same for the same graph.

        Args:
            expand: How many levels of nested graphs to open.
        """
        return dot_text(scene_of(self, expand), self._caption())

    def svg(self, path: Path | None = None, *, engine: Engine = "auto", expand: int = 0) -> str:
        """Return the graph as an SVG picture, and write it to a file if one is given.

        Args:
            path: The file.
            engine: ``"dot"`` uses Graphviz, ``"builtin"`` flodl's own renderer, which needs
                nothing; ``"auto"`` uses Graphviz where it is installed.
            expand: How many levels of nested graphs to open.

        Raises:
            ConfigError: ``engine="dot"``, but Graphviz is not installed.
        """
        scene, title = scene_of(self, expand), self._caption()
        use_dot = engine == "dot" or (engine == "auto" and has_graphviz())
        text = graphviz_svg(dot_text(scene, title)) if use_dot else svg_text(scene, title)
        return _written(text, path)

    def dot_with_profile(self) -> str:
        """Return DOT text with the times of the last profiled call, and colors by them.

        Raises:
            NoDataError: Nothing was profiled yet.
        """
        profile = self.profile()
        title = f"{self._caption()}: {time_text(profile.total)}"
        return dot_text(scene_of(self), title, fills=heat_fills(profile), profile=profile)

    def svg_with_profile(self, path: Path | None = None, *, engine: Engine = "auto") -> str:
        """Return a picture with the times of the last profiled call, green to red by them.

        Raises:
            NoDataError: Nothing was profiled yet.
            ConfigError: ``engine="dot"``, but Graphviz is not installed.
        """
        if engine == "dot" or (engine == "auto" and has_graphviz()):
            return _written(graphviz_svg(self.dot_with_profile()), path)
        profile = self.profile()
        title = f"{self._caption()}: {time_text(profile.total)}"
        fills = heat_fills(profile)
        return _written(svg_text(scene_of(self), title, fills=fills, profile=profile), path)

    def summary(self, example: Any = None, depth: int = 1) -> Summary:
        """Return a table of all steps: inputs, output shapes, parameters.

        Args:
            example: An input, or a tuple of all inputs. Shapes are computed from its shape alone:
                nothing is run, weights and statistics are not touched.
            depth: How many levels of nested graphs to open, this one included.
        """
        return summarize(self, example, depth)

    def tree_summary(self) -> str:
        """Return nested graphs and tags as an indented tree, with hashes and parameters."""
        return tree_text(self)

    def param_summary(self) -> str:
        """Return a table of all steps with parameters: tensors, elements, share, frozen or not."""
        return param_table(self)

    # ------------------------------------------------------------- metrics over epochs

    def plot_html(self, path: Path, names: Iterable[str] = ()) -> None:
        """Write the curves of metrics as one interactive page, which needs no network.

        Args:
            path: The file.
            names: Metrics, groups, or paths to metrics; by default all, those of children too.

        Raises:
            NoDataError: There is nothing to show.
        """
        _written(page(f"{self._caption()}: metrics", self._series(names, "plot_html")), path)

    def plot_timings_html(self, path: Path, names: Iterable[str] = ()) -> None:
        """Write the curves of node times, in seconds, as one interactive page.

        Raises:
            NoDataError: There is nothing to show.
        """
        series = self._timing_series(names, "plot_timings_html")
        _written(page(f"{self._caption()}: times", series, "seconds"), path)

    def export_trends(self, path: Path, names: Iterable[str] = ()) -> None:
        """Write metrics as comma-separated values, one line an epoch.

        Raises:
            NoDataError: There is nothing to write.
        """
        _written(table(self._series(names, "export_trends")), path)

    def export_timing_trends(self, path: Path, names: Iterable[str] = ()) -> None:
        """Write node times, in seconds, as comma-separated values, one line an epoch.

        Raises:
            NoDataError: There is nothing to write.
        """
        _written(table(self._timing_series(names, "export_timing_trends")), path)

    def write_log(self, path: Path, total_epochs: int = 0, names: Iterable[str] = ()) -> None:
        """Write one line an epoch: metrics, mean duration, remaining time.

        Raises:
            NoDataError: There is nothing to write.
        """
        series = self._series(names, "write_log")
        started, count = self.flodl_memory.started, self.flush_count
        seconds = (time.monotonic() - started) / count if started is not None and count else 0.0
        _written("\n".join(log_lines(series, total_epochs, seconds)) + "\n", path)

    def _series(self, names: Iterable[str], call: str) -> dict[str, list[float]]:
        groups = dict(self.flodl_plan.groups)
        chosen = [one for name in names for one in groups.get(name, (name,))]
        if not chosen:
            chosen = list(self.latest_metrics())
        return _with_data({name: self.trend(name).values for name in chosen}, call)

    def _timing_series(self, names: Iterable[str], call: str) -> dict[str, list[float]]:
        groups = dict(self.flodl_plan.groups)
        chosen = [one for name in names for one in groups.get(name, (name,))]
        history = self.flodl_clock.history
        return _with_data(
            {name: history.trend(name).values for name in chosen or history.names()}, call
        )

    # ------------------------------------------------------------- on screen

    def __repr__(self) -> str:
        return f"{self._line()}\n{super().__repr__()}"

    def _line(self) -> str:
        parameters = list(self.parameters())
        frozen = sum(not item.requires_grad for item in parameters)
        label = f"label={self.label!r}, " if self.label else ""
        kind = "dynamic" if next(blockers(self), None) else "static"
        return (
            f"Graph({label}hash={self.short_hash}, nodes={len(self.flodl_plan.nodes)}, "
            f"params={count_text(count_parameters([self]))}, frozen={frozen}, "
            f"inputs=({', '.join(self.input_names)}), tags={len(self.flodl_plan.tags)}, {kind})"
        )

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        picture = svg_text(scene_of(self), self._caption())
        rows = self.summary()._repr_html_()
        return {"text/plain": repr(self), "text/html": f"<div>{picture}{rows}</div>"}

    def _caption(self) -> str:
        name = self.label or "graph"
        children = len(children_of(self))
        inside = f", {children} nested" if children else ""
        return f"{name} {self.short_hash}{inside}"


def _with_data(series: dict[str, list[float]], call: str) -> dict[str, list[float]]:
    if not any(series.values()):
        raise NoDataError(
            f"{call}: there is nothing to show of {', '.join(series) or 'any metric'}",
            hint="collect or record values, then call flush()",
        )
    return series


def _written(text: str, path: Path | None) -> str:
    if path is not None:
        with write_atomically(path) as file:
            file.write(text.encode())
    return text
