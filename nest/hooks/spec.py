"""Hook signatures for plug-in authors.

A distribution joins by an entry point in the group `nest` that names a module (or object) with functions of these names
marked `@nest.hooks.hook`. Each function returns a list of objects with the members in `nest.hooks.protocols`. The
registry checks every object and disables broken ones with a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

# What the annotations name stays unloaded: `nest --help` passes through here.
if TYPE_CHECKING:
    from collections.abc import Iterable

    import typer

    from nest.hooks import protocols

PROJECT = "nest"
hookspec = pluggy.HookspecMarker(PROJECT)
hook = pluggy.HookimplMarker(PROJECT)

VERSION = 1
"""Version of the hooks and protocols. A plug-in whose module has a larger `hook_version` is refused."""


@hookspec
def nest_strategies() -> Iterable[protocols.Strategy]:  # type: ignore[empty-body]
    """Sub-graph strategies: each rewrites a block's operator graph for a degree."""


@hookspec
def nest_model_importers() -> Iterable[protocols.ModelImporter]:  # type: ignore[empty-body]
    """Model importers: each turns one kind of source into an operator graph."""


@hookspec
def nest_topology_importers() -> Iterable[protocols.TopologyImporter]:  # type: ignore[empty-body]
    """Topology importers: each turns one kind of source into a cluster."""


@hookspec
def nest_cost_models() -> Iterable[protocols.CostModel]:  # type: ignore[empty-body]
    """Cost models: each prices an operator on a device."""


@hookspec
def nest_collective_models() -> Iterable[protocols.CollectiveModel]:  # type: ignore[empty-body]
    """Collective models: each prices a collective call on a set of devices."""


@hookspec
def nest_layer_times() -> Iterable[protocols.LayerTimes]:  # type: ignore[empty-body]
    """Models of layer times: each combines the times of a layer's operators."""


@hookspec
def nest_schedules() -> Iterable[protocols.Schedule]:  # type: ignore[empty-body]
    """Pipeline schedules: step-time weights and micro-batches in flight."""


@hookspec
def nest_planners() -> Iterable[protocols.Planner]:  # type: ignore[empty-body]
    """Planners: each plans in its own way, for comparison."""


@hookspec
def nest_exporters() -> Iterable[protocols.Exporter]:  # type: ignore[empty-body]
    """Exporters: each turns a plan into files of another tool."""


@hookspec
def nest_plan_readers() -> Iterable[protocols.PlanReader]:  # type: ignore[empty-body]
    """Plan readers: each reads a plan from a framework's launch files."""


@hookspec
def nest_stacks() -> Iterable[protocols.Stack]:  # type: ignore[empty-body]
    """Software stacks: each gives defaults of a framework."""


@hookspec
def nest_engines() -> Iterable[protocols.Engine]:  # type: ignore[empty-body]
    """Engines: each runs the points of a sweep, on this machine or on many."""


@hookspec
def nest_commands(app: typer.Typer) -> None:
    """Add commands to the command line."""
