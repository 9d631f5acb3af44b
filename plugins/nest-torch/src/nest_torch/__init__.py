"""PyTorch for nest: captures, plans and parallelises modules, measures operators, reads exported programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nest.hooks import hook

# What the annotations name stays unloaded, PyTorch above all: every `nest` command passes through here.
if TYPE_CHECKING:
    import typer
    from torch.distributed.device_mesh import DeviceMesh

    from nest.graph import OperatorGraph
    from nest.hooks.protocols import ModelImporter
    from nest.spec import PlanDocument
    from nest_torch.parallel.execution import Execution
    from nest_torch.parallel.training import Parallel

__all__ = ["apply", "capture", "check", "mesh", "plan"]


@hook
def nest_commands(app: typer.Typer) -> None:
    """`nest profile`, `nest capture` and `nest torch`."""
    from nest_torch.commands import register

    register(app)


@hook
def nest_model_importers() -> list[ModelImporter]:
    """Programs of `torch.export`, node by node; PyTorch is not needed to read them."""
    from nest_torch.exported.importer import importer

    return [importer]


def capture(module: Any, example_inputs: Any, **options: Any) -> OperatorGraph:
    """The operator graph of a module; `nest_torch.capturing.capture` says what `options` there are."""
    from nest_torch.capturing import capture

    return capture(module, example_inputs, **options)


def plan(model: Any, example_inputs: Any, cluster: Any, **problem: Any) -> PlanDocument:
    """The fastest plan of a module on a cluster that PyTorch runs (`nest_torch.planning.plan`)."""
    from nest_torch.planning import plan

    return plan(model, example_inputs, cluster, **problem)


def mesh(plan: Any, device_type: str = "cuda") -> DeviceMesh:
    """The device mesh that a plan is applied on (`nest_torch.parallel.layout.mesh`)."""
    from nest_torch.parallel.layout import mesh

    return mesh(plan, device_type)


def apply(model: Any, plan: Any, mesh: Any = None, **options: Any) -> Parallel:
    """A module split, placed, recomputed and sharded as a plan says (`nest_torch.parallel.applying.apply`)."""
    from nest_torch.parallel.applying import apply

    return apply(model, plan, mesh, **options)


def check(model_factory: Any, plan: Any, example_inputs: Any = None, **options: Any) -> Execution:
    """Check that a plan trains a module as one process does (`nest_torch.parallel.checking.check`)."""
    from nest_torch.parallel.checking import check

    return check(model_factory, plan, example_inputs, **options)
