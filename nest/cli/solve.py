"""`nest solve`: the best plan of one problem or several."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nest.cli.output import DONE, NO_PLAN, to_json, warn, write

if TYPE_CHECKING:
    from nest.instance import Standing


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("solve")(solve)


def solve(
    problems: list[Path] = typer.Argument(..., metavar="PROBLEM...", help="Problem files: YAML, JSON or TOML."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write the plan to this file, as JSON."),
    as_json: bool = typer.Option(False, "--json", help="Print the plan as one JSON document and nothing else."),
    time_limit: float | None = typer.Option(
        None,
        "--time-limit",
        metavar="S",
        help="Seconds after which the best plan so far is taken, with its bound.",
    ),
    explain_search: bool = typer.Option(
        False, "--explain-search", help="Print what the search did, on standard error."
    ),
) -> None:
    """Find the fastest plan of a problem, proved optimal, or say what makes it infeasible.

    Exit code 0: a plan was found; 1: there is none; 2: bad input. Several problems give one JSON document a line.
    """
    from nest import planner
    from nest.errors import InputError
    from nest.files import check_writable
    from nest.hooks.registry import registry
    from nest.report import summary

    if output is not None and len(problems) > 1:
        raise InputError("--output takes the plan of one problem; give one problem, or --json for several.")
    if output is not None:
        check_writable(output)
    code = DONE
    for problem in problems:
        progress = _progress()
        plan = planner.solve(problem, time_limit=time_limit, progress=progress)
        if progress is not None:
            progress.clear()
        warn(registry().warnings)
        if output is not None:
            write(output, to_json(plan.to_dict()) + "\n")
        if as_json or len(problems) > 1:
            typer.echo(to_json(plan.to_dict(), one_line=len(problems) > 1))
        else:
            typer.echo(summary(plan))
        if explain_search:
            typer.echo(_statistics(plan.statistics), err=True)
        if plan.status == "infeasible":
            code = NO_PLAN
    raise typer.Exit(code)


def _statistics(statistics: dict[str, Any]) -> str:
    rows: list[tuple[str, Any]] = []
    for name, value in statistics.items():
        parts = value if isinstance(value, dict) else {}
        rows.append((name.replace("_", " "), sum(parts.values()) if parts else value))
        rows += [(f"  {part}", count) for part, count in parts.items()]
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)


class _Progress:
    """One line on the terminal, from two seconds on: the best plan, the bound, their gap, the share explored."""

    def __init__(self) -> None:
        self._shown = 0.0
        self._line = ""

    def __call__(self, standing: "Standing") -> None:
        now = time.monotonic()
        if standing.seconds < 2 or now - self._shown < 0.5:
            return
        self._shown = now
        best, bound = standing.best, standing.bound
        found = f"best {best:.6g} s, gap {best / bound - 1:.2%}" if best and bound > 0 else "no plan yet"
        self._put(
            f"searching for {standing.seconds:.0f} s: {found}, no plan is faster than {bound:.6g} s, "
            f"{standing.explored:.1%} explored"
        )

    def clear(self) -> None:
        """Remove the line."""
        if self._line:
            self._put("")

    def _put(self, line: str) -> None:
        sys.stderr.write("\r" + line.ljust(len(self._line)) + ("" if line else "\r"))
        sys.stderr.flush()
        self._line = line


def _progress() -> _Progress | None:
    return _Progress() if sys.stderr.isatty() else None
