"""PyTorch for nest: measures operators and collectives, captures modules as graphs, reads exported programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nest.hooks import hook

# What the annotations name stays unloaded, PyTorch above all: every `nest` command passes through here.
if TYPE_CHECKING:
    import typer

    from nest.graph import OperatorGraph
    from nest.hooks.protocols import ModelImporter

__all__ = ["capture"]


@hook
def nest_commands(app: typer.Typer) -> None:
    """`nest profile` and `nest capture`."""
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
