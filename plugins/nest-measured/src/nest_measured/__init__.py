"""Measurements for nest: operator costs from a table, and imports of what other tools measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nest.hooks import hook

# What the annotations name stays unloaded: every `nest` command passes through here.
if TYPE_CHECKING:
    import typer

    from nest.hooks.protocols import CostModel


@hook
def nest_cost_models() -> list[CostModel]:
    """Operator times from a table of measurements."""
    from nest_measured.model import Measured

    return [Measured()]


@hook
def nest_commands(app: typer.Typer) -> None:
    """`nest measured`: imports."""
    from nest_measured.commands import register

    register(app)
