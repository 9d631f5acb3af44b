"""`nest solve`: the best plan of one problem or several."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

import nest
from nest import api
from nest.cli.asked import (
    BATCH,
    CLUSTER,
    DEVICE,
    GPUS_PER_NODE,
    MODEL,
    NETWORK,
    NODES,
    SEQUENCE,
    Asked,
    ProblemCommand,
    check_asked,
)
from nest.cli.options import STRICT_PLUGINS, TOKENS, changes_of, complete_targets
from nest.cli.options import time_limit as time_limit_option
from nest.cli.output import DONE, NO_PLAN, fail, note, note_once, note_plan, screen, stoppable, to_json, unwritten
from nest.cli.progress import progress_line
from nest.errors import InputError, NoPlanYet
from nest.report.text.layout import figures
from nest.solve.effort import Deadline

if TYPE_CHECKING:
    from nest.report.text.comparison import Entry
    from nest.spec import PlanDocument


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("solve", cls=_Solve)(solve)


class _Solve(ProblemCommand):
    """A command that reads `--verify=free` as `--verify --free`: typer has no optional values."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        parted = [each for arg in args for each in (("--verify", "--free") if arg == "--verify=free" else (arg,))]
        return super().parse_args(ctx, parted)


def solve(
    problems: list[Path] = typer.Argument(
        None, metavar="[PROBLEM...]", help="Problem files: YAML, JSON or TOML; or use options."
    ),
    model: str | None = MODEL,
    cluster: str | None = CLUSTER,
    nodes: str | None = NODES,
    gpus_per_node: str | None = GPUS_PER_NODE,
    device: str | None = DEVICE,
    network: str | None = NETWORK,
    batch: str | None = BATCH,
    sequence: str | None = SEQUENCE,
    print_problem: bool = typer.Option(
        False, "--print-problem", help="Print the problem made by options; do not solve it."
    ),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write the plan to this JSON file."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
    time_limit: float | None = time_limit_option("Time limit, such as 5min; keeps the best plan so far."),
    verify: bool = typer.Option(False, "--verify", help="Prove the plan with a second solver, CP-SAT."),
    free: bool = typer.Option(False, "--free", help="With --verify: also try stages in any device order."),
    workers: int = typer.Option(1, "--workers", metavar="N", help="With --verify: CP-SAT threads."),
    jobs: int | None = typer.Option(
        None, "--jobs", "-j", metavar="N", help="With --verify: processes; default: one per CPU."
    ),
    target: str | None = typer.Option(
        None,
        "--target",
        metavar="NAME",
        autocompletion=complete_targets,
        help="Framework that runs the plan; `none` lifts its limits.",
    ),
    tokens: str | None = TOKENS,
    best: int | None = typer.Option(
        None, "--best", metavar="K", help="Print the K best plans; --output is then a folder."
    ),
    explain_search: bool = typer.Option(False, "--explain-search", help="Print search statistics on standard error."),
    certificate: Path | None = typer.Option(None, "--certificate", metavar="FILE", help="Also write a proof to check."),
    watch: bool = typer.Option(False, "--watch", help="Solve again whenever a problem file changes."),
    stages: bool = typer.Option(False, "--stages", "--verbose", help="Also print stages, memory and the runner-up."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Find the simplest plan within 1 % of the fastest possible step.

    Exit code 0: found a plan; 1: no plan, none found in time, or a failed proof; 2: bad input; 130: stopped by
    Ctrl-C.
    """
    from nest.io import check_writable, read_mapping_text, there_is
    from nest.io.source import STANDARD_INPUT

    deadline = Deadline.of(time_limit)  # What is imported next takes part of the time.
    asked = Asked(model, cluster, nodes, gpus_per_node, device, network, batch, sequence, tokens, target)
    check_asked(asked, problems or (), print_problem)
    text = None
    if not problems:
        from nest.cli.problem_text import problem_text

        text = problem_text(asked, Path("problem.yaml"), "solve")
    if text is not None and print_problem:
        if output is not None:
            raise InputError("--print-problem writes no file; use `nest init` with the same options.")
        typer.echo(text, nl=False)
        return
    source = None if text is None else read_mapping_text(text, str(MADE))
    problems = [MADE] if source is not None else problems
    if (output or certificate) and len(problems) > 1:
        raise InputError("--output and --certificate take one plan; give one problem, or --json for several.")
    if free and not verify:
        raise InputError("--free needs --verify; or give --verify=free.")
    if watch and (source is not None or STANDARD_INPUT in problems):
        raise InputError("--watch needs problem files; pipes and options are read once.")
    changes = changes_of(target=target, tokens=tokens)
    several = len(problems) > 1
    told = ShownOnce(output, as_json or several, several or watch, explain_search, stages, certificate)
    if best is not None:
        if len(problems) > 1 or verify or explain_search:
            raise InputError("--best takes one problem, without --verify or --explain-search.")
        if output is not None and there_is(output) == "file":
            raise InputError(f"{output} is a file; --best needs a folder as --output.")
        answer = partial(
            _shortlist, problems[0], _of(source, partial(api.shortlist, changes=changes, count=best)), told
        )
    else:
        for file in filter(None, (output, certificate)):
            check_writable(file, *problems, *asked.files)
        how: Any = {"verify": "free" if free else verify, "workers": workers, "jobs": jobs}
        answer = partial(_plans, problems, _of(source, partial(api.solve, changes=changes, **how)), told, time_limit)
    if watch:
        from nest.cli.watch import answered_until_stopped

        raise typer.Exit(answered_until_stopped(lambda: answer(Deadline.of(time_limit))))
    raise typer.Exit(answer(deadline))


MADE = Path("options")  # Stands for the file of a problem made by options.


def _of(source: Mapping[str, Any] | None, search: Callable[..., Any]) -> Callable[..., Any]:
    """Bind `search` to a problem that is in no file, if there is one."""
    return search if source is None else lambda _, **named: search(source, **named)


class ShownOnce(NamedTuple):
    """Output settings of plans."""

    output: Path | None  # The file for a plan, or the folder for several; None: none is written.
    as_json: bool  # Print as JSON.
    one_line: bool  # Print a document in one line, as there are several.
    explain_search: bool  # Describe the search.
    stages: bool  # Print more than the first screen.
    certificate: Path | None  # File for a proof; None: none is written.


def _plans(
    problems: Sequence[Path],
    search: "Callable[..., PlanDocument]",
    told: ShownOnce,
    time_limit: float | None,
    deadline: Deadline,
) -> int:
    """Print the best plan of each problem; return the exit code. The first problem sets the deadline.

    Raises:
        NoPlanYet: Ctrl-C was pressed before all have their plan.
    """
    code = DONE
    for done, problem in enumerate(problems):
        deadline, implied = Deadline.of(time_limit) if done else deadline, list[str]()
        try:
            with progress_line("searching") as progress, stoppable(deadline):
                plan = search(problem, message=implied.append, time_limit=deadline, progress=progress)
        except NoPlanYet as error:
            if error.stopped:
                raise
            fail(f"{problem}: {error}")
            code = NO_PLAN
            continue
        _tell(plan, problem, implied, told)
        if plan.status == "infeasible" or (plan.verification or {}).get("status", "proved") != "proved":
            code = NO_PLAN
        if deadline.stopped and done + 1 < len(problems):
            raise NoPlanYet(f"stopped before {', '.join(map(str, problems[done + 1 :]))}.", stopped=True)
    return code


def _tell(plan: "PlanDocument", problem: Path, implied: Iterable[str], told: ShownOnce) -> None:
    """Print a plan, and write it.

    Raises:
        InputError: it cannot be written, and was printed instead.
    """
    from nest.report.text.first_screen import unlikely_text
    from nest.report.text.summary import verdict_text

    unlikely = unlikely_text(plan)
    if told.as_json and unlikely is not None:
        note(f"{problem}: {unlikely}")
    note_plan(plan, problem)
    failed = unwritten(told.output, to_json(plan.to_dict()) + "\n") if told.output is not None else None
    if told.as_json or failed is not None:
        typer.echo(to_json(plan.to_dict(), one_line=told.one_line))
    else:
        note_once(implied)
        typer.echo(_text(plan, told.output, told.stages))
        if plan.verification is not None:
            typer.echo("\n" + verdict_text(plan.verification, screen()))
    if told.certificate is not None and plan.lower_bound is not None:
        nest.certify(plan, output=told.certificate)
    if told.explain_search:
        typer.echo(_statistics(plan.statistics), err=True)
    if failed is not None:
        raise failed


def _text(plan: "PlanDocument", output: Path | None, stages: bool) -> str:
    from nest.report.text.first_screen import first_screen, next_command
    from nest.report.text.summary import details

    parts = [first_screen(plan, screen(), next_command(plan, output), whole=stages)]
    return "\n\n".join([*parts, *details(plan, screen())] if stages and plan.stages else parts)


def _shortlist(problem: Path, search: "Callable[..., tuple[Entry, ...]]", told: ShownOnce, deadline: Deadline) -> int:
    """Print the best plans, and write a file of each; return the exit code."""
    from nest.io import write_files
    from nest.report.text.comparison import shortlist_document, shortlist_text

    implied = list[str]()
    with progress_line("searching") as progress, stoppable(deadline):
        entries = search(problem, time_limit=deadline, progress=progress, message=implied.append)
    plan = entries[0].plan
    note_plan(plan, problem)
    if told.output is not None and plan.status != "infeasible":
        files = {f"plan-{place}.json": to_json(each.plan.to_dict()) + "\n" for place, each in enumerate(entries, 1)}
        write_files(told.output, files)
    if told.as_json:
        typer.echo(to_json(shortlist_document(entries), one_line=told.one_line))
    else:
        note_once(implied)
        typer.echo(_text(plan, None if told.output is None else told.output / "plan-1.json", told.stages))
        if plan.status != "infeasible":
            typer.echo("\n" + shortlist_text(entries, screen()))
    return NO_PLAN if plan.status == "infeasible" else DONE


def _statistics(statistics: dict[str, Any]) -> str:
    rows: list[tuple[str, Any]] = []
    for name, value in statistics.items():
        parts = value if isinstance(value, dict) else {}
        rows.append((name.replace("_", " "), sum(parts.values()) if parts else value))
        rows += [(f"  {part}", count) for part, count in parts.items()]
    return figures([(name, str(value)) for name, value in rows], screen(errors=True))
