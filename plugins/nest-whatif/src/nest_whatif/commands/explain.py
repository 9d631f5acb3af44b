"""`nest explain`: reasons for a plan, and changes that would alter it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nest.public.commands import (
    JSON,
    NO_PLAN,
    PLAN,
    STRICT_PLUGINS,
    clear_line,
    screen,
    share_line,
    to_json,
    warn_of_plugins,
)
from nest.public.commands import time_limit as time_limit_option
from nest_whatif import verbs

if TYPE_CHECKING:
    from nest_whatif.explain import Explanation


def explain(
    plan: Path = PLAN,
    only: list[str] = typer.Option(
        [], "--only", metavar="PART", help="binding, constraints, pools, alternatives or flips."
    ),
    time_limit: float | None = time_limit_option("Limit per search; keeps the best plan so far."),
    jobs: int | None = typer.Option(None, "--jobs", "-j", metavar="N", help="Search processes; default: one per CPU."),
    as_json: bool = JSON,
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Explain a plan: bottleneck, restrictions and alternatives.

    Every part but `binding` runs searches. Exit code 0: done; 1: the plan is infeasible (nest explains why); 2: bad
    input.
    """
    from nest_whatif.text.explanation import explanation_section

    printed = dict[str, str]()

    def show(step: str, explanation: "Explanation") -> None:
        """Print the findings of a step, once."""
        section = "" if as_json or step in printed else explanation_section(explanation.to_dict(), step, screen())
        if section:
            clear_line()
            warn_of_plugins()
            typer.echo("\n" * any(printed.values()) + section)
            sys.stdout.flush()
        printed.setdefault(step, section)

    with share_line() as tell:
        found = verbs.explain(plan, only=only, time_limit=time_limit, jobs=jobs, progress=tell, ready=show)
    warn_of_plugins()
    if as_json:
        typer.echo(to_json(found.to_dict()))
    if found.plan.status == "infeasible":
        raise typer.Exit(NO_PLAN)
