"""`nest frontier`: all Pareto-optimal plans of a plan's problem."""

from pathlib import Path

import typer
from attrs import asdict

from nest.public.commands import (
    JSON,
    NO_PLAN,
    PLAN,
    STRICT_PLUGINS,
    StepLine,
    show_paragraph,
    show_table,
    to_json,
    warn_of_plugins,
)
from nest.public.commands import time_limit as time_limit_option
from nest.units import format_bytes, format_seconds
from nest_whatif import verbs


def frontier(
    plan: Path = PLAN,
    memory_step: float = typer.Option(
        0.0, "--memory-step", metavar="SHARE", help="Ignore memory differences below this, such as 0.02."
    ),
    time_limit: float | None = time_limit_option("Limit per search; keeps the best plan so far."),
    as_json: bool = JSON,
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """List the Pareto front of step time, devices, memory and cost.

    One search per step of devices and memory proves the front. Exit code 0: done; 1: the problem has no plan; 2: bad
    input.
    """
    steps = StepLine()
    try:
        points = verbs.frontier(
            plan,
            complete=True,
            memory_step=memory_step,
            time_limit=time_limit,
            progress=lambda asking, done: steps.tell(asking, done, None),
        )
    finally:
        steps.clear()
    warn_of_plugins()
    front = [point for point in points if point.efficient]
    if as_json:
        typer.echo(to_json({"nest": 1, "memory_step": memory_step, "steps": [asdict(point) for point in points]}))
    elif not front:
        show_paragraph("No plan of the problem fits.")
    else:
        costs = any(point.cost is not None for point in front)
        rows = [
            [
                format_seconds(point.batch_time or 0.0),
                f"{point.devices_used:,}",
                format_bytes(point.memory),
                *([f"{point.cost:,.0f}" if point.cost is not None else ""] if costs else []),
                point.label or "",
            ]
            for point in sorted(front, key=lambda each: (each.batch_time or 0.0, each.devices_used or 0))
        ]
        header = ("step time", "devices", "memory", *(["cost"] if costs else []), "plan")
        show_table(header, rows, right=range(len(header) - 1))
        typer.echo()
        show_paragraph(_proof(len(points), len(front), memory_step, proved=all(point.proved for point in points)))
    if not front:
        raise typer.Exit(NO_PLAN)


def _proof(steps: int, front: int, memory_step: float, *, proved: bool) -> str:
    from nest.units import percent

    if not proved:
        return f"{front} plans in {steps} steps; searches were stopped, so faster plans may exist."
    nearly = f", within {percent(memory_step / (1 - memory_step))} of memory" if memory_step else ""
    return f"Proved in {steps} searches: these {front} plans are the Pareto front{nearly}."
