"""`nest solve`: the best plan of one problem or several."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
import typer.core

from nest import api
from nest.cli.options import STRICT_PLUGINS, TOKENS, changes_of, complete_targets
from nest.cli.options import time_limit as time_limit_option
from nest.cli.output import DONE, NO_PLAN, fail, note_once, note_plan, screen, stoppable, to_json, unwritten
from nest.cli.progress import progress_line
from nest.errors import InputError, NoPlanYet
from nest.report.text.layout import figures
from nest.solve.effort import Deadline

if TYPE_CHECKING:
    from nest.formulate.problem import Changes


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("solve", cls=_Solve)(solve)


class _Solve(typer.core.TyperCommand):
    """Reads `--verify=free` as `--verify --free`: typer knows no options whose value may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with `--verify=free` in two."""
        parted = [each for arg in args for each in (("--verify", "--free") if arg == "--verify=free" else (arg,))]
        return super().parse_args(ctx, parted)


def solve(
    problems: list[Path] = typer.Argument(..., metavar="PROBLEM...", help="Problem files: YAML, JSON or TOML."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write the plan to this file, as JSON."),
    as_json: bool = typer.Option(False, "--json", help="Print the plan as one JSON document and nothing else."),
    time_limit: float | None = time_limit_option(
        "Time for all of it, after which the best plan so far is taken, with its bound; Ctrl-C does the same."
    ),
    verify: bool = typer.Option(
        False, "--verify", help="Let a second solver, CP-SAT, prove the plan; `--verify=free`: see --free."
    ),
    free: bool = typer.Option(
        False, "--free", help="With --verify: let blocks lie anywhere, and say what keeping their order costs."
    ),
    workers: int = typer.Option(1, "--workers", metavar="N", help="With --verify: threads CP-SAT uses."),
    jobs: int | None = typer.Option(
        None,
        "--jobs",
        "-j",
        metavar="N",
        help="With --verify: processes that bound cases; left out, one for each processor.",
    ),
    target: str | None = typer.Option(
        None,
        "--target",
        metavar="NAME",
        autocompletion=complete_targets,
        help="The framework that must be able to run the plan, in place of the problem's; `none`: any may.",
    ),
    tokens: str | None = TOKENS,
    best: int | None = typer.Option(
        None,
        "--best",
        metavar="K",
        help="The K best plans that differ in degrees, stages, micro-batch, schedule, ZeRO or recomputation; --output "
        "is a folder then.",
    ),
    explain_search: bool = typer.Option(
        False, "--explain-search", help="Print what the search did, on standard error."
    ),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Find the fastest plan of a problem, proved optimal, or say what makes it infeasible.

    Exit code 0: a plan was found; 1: there is none, none was found in time, or its proof failed; 2: bad input; 130:
    Ctrl-C before there was one. Several problems give one JSON document a line.
    """
    from nest.io import check_writable, there_is

    deadline = Deadline.of(time_limit)  # What is imported next takes part of the time.
    from nest.report.text.summary import summary, verdict_text

    if output is not None and len(problems) > 1:
        raise InputError("--output takes the plan of one problem; give one problem, or --json for several.")
    if free and not verify:
        raise InputError("--free says how to verify; give --verify too, or --verify=free.")
    changes = changes_of(target=target, tokens=tokens)
    if best is not None:
        if len(problems) > 1 or verify or explain_search:
            raise InputError("--best takes one problem, and no --verify or --explain-search.")
        if output is not None and there_is(output) == "file":
            raise InputError(f"{output} is a file; with --best, --output is a folder for the plans.")
        _shortlist(problems[0], changes, best, output, as_json, deadline)
    if output is not None:
        check_writable(output, *problems)
    code = DONE
    for done, problem in enumerate(problems):
        deadline, implied = Deadline.of(time_limit) if done else deadline, list[str]()
        try:
            with progress_line("searching") as progress, stoppable(deadline):
                plan = api.solve(
                    problem,
                    message=implied.append,
                    changes=changes,
                    time_limit=deadline,
                    progress=progress,
                    verify="free" if free else verify,
                    workers=workers,
                    jobs=jobs,
                )
        except NoPlanYet as error:
            if error.stopped:
                raise
            fail(f"{problem}: {error}")
            code = NO_PLAN
            continue
        note_plan(plan, problem)
        failed = unwritten(output, to_json(plan.to_dict()) + "\n") if output is not None else None
        if as_json or len(problems) > 1 or failed is not None:
            typer.echo(to_json(plan.to_dict(), one_line=len(problems) > 1))
        else:
            note_once(implied)
            typer.echo(summary(plan, screen()))
            if plan.verification is not None:
                typer.echo("\n" + verdict_text(plan.verification, screen()))
        if explain_search:
            typer.echo(_statistics(plan.statistics), err=True)
        if plan.status == "infeasible" or (plan.verification or {}).get("status", "proved") != "proved":
            code = NO_PLAN
        if failed is not None:  # With --output there is one problem.
            raise failed
        if deadline.stopped and done + 1 < len(problems):
            raise NoPlanYet(f"stopped before {', '.join(map(str, problems[done + 1 :]))}.", stopped=True)
    raise typer.Exit(code)


def _shortlist(
    problem: Path, changes: "Changes", count: int, output: Path | None, as_json: bool, deadline: "Deadline"
) -> NoReturn:
    """Print the best plans, and write a file of each."""
    from nest.api import shortlist
    from nest.io import write_files
    from nest.report.text.comparison import shortlist_document, shortlist_text
    from nest.report.text.summary import summary

    implied = list[str]()
    with progress_line("searching") as progress, stoppable(deadline):
        entries = shortlist(
            problem, count, time_limit=deadline, progress=progress, message=implied.append, changes=changes
        )
    plan = entries[0].plan
    note_plan(plan, problem)
    if output is not None and plan.status != "infeasible":
        files = {f"plan-{place}.json": to_json(each.plan.to_dict()) + "\n" for place, each in enumerate(entries, 1)}
        write_files(output, files)
    if as_json:
        typer.echo(to_json(shortlist_document(entries)))
    else:
        note_once(implied)
        typer.echo(summary(plan, screen()))
        if plan.status != "infeasible":
            typer.echo("\n" + shortlist_text(entries, screen()))
    raise typer.Exit(NO_PLAN if plan.status == "infeasible" else DONE)


def _statistics(statistics: dict[str, Any]) -> str:
    rows: list[tuple[str, Any]] = []
    for name, value in statistics.items():
        parts = value if isinstance(value, dict) else {}
        rows.append((name.replace("_", " "), sum(parts.values()) if parts else value))
        rows += [(f"  {part}", count) for part, count in parts.items()]
    return figures([(name, str(value)) for name, value in rows], screen(errors=True))
