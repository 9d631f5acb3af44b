"""`nest compare`: our plan beside those of other planners."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import typer

from nest import api
from nest.cli.options import (
    DEVICES_PER_NODE,
    FILES,
    JSON,
    NODES,
    PART,
    STRICT_PLUGINS,
    ScriptCommand,
    complete_planners,
    launch_options,
)
from nest.cli.options import time_limit as time_limit_option
from nest.cli.output import NO_PLAN, note_assumed, screen, show, show_listing, to_json, warn_of_plugins
from nest.cli.progress import StepLine, progress_line
from nest.errors import InputError
from nest.io.source import SUFFIXES


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare", cls=ScriptCommand)(compare)


def compare(
    context: typer.Context,
    problem: Path | None = typer.Argument(
        None, metavar="PROBLEM", help="A problem file: YAML, JSON or TOML; or a folder of them."
    ),
    planners: list[str] = typer.Option(
        [],
        "--planner",
        metavar="NAME",
        autocompletion=complete_planners,
        help="A planner from the list, with options as in mcmc:seed=3; repeatable. Left out, all of them.",
    ),
    plans: list[Path] = typer.Option(
        [], "--plan", metavar="FILE", help="A plan file, priced on this problem; may be repeated."
    ),
    from_megatron: list[Path] = typer.Option(
        [],
        "--from-megatron",
        metavar="FILE",
        help="A script (or YAML map) of Megatron-LM flags, priced here; read, never run; repeatable.",
    ),
    from_file: tuple[str, Path] | None = typer.Option(
        None,
        "--from",
        metavar="NAME FILE",
        help="A file of a framework, priced here; NAME is a plan reader, such as torchtitan; repeatable.",
    ),
    nodes: int | None = NODES,
    devices_per_node: int | None = DEVICES_PER_NODE,
    part: str | None = PART,
    seed: int = typer.Option(
        api.SEED,
        "--seed",
        metavar="N",
        show_default=False,
        help=f"Seed of planners that draw random numbers ({api.SEED}).",
    ),
    evaluations: int = typer.Option(
        api.EVALUATIONS,
        "--evaluations",
        metavar="N",
        show_default=False,
        help=f"Plans that a planner which tries plans out may price ({api.EVALUATIONS}).",
    ),
    time_limit: float | None = time_limit_option("Time for each search; then the best plan so far is taken."),
    planner_limit: float | None = time_limit_option(
        "Time for each planner; then its row says so. Left out, those of plug-ins have 5 s.", "--planner-time-limit"
    ),
    timings: bool = typer.Option(
        False, "--timings", help="Say how long each plan took to find; the clock then changes what is printed."
    ),
    listing: bool = typer.Option(False, "--list", help="List the planners."),
    as_json: bool = JSON,
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Put the fastest plan beside those of other planners, of plan files and of what frameworks run today.

    All are priced by the same code on the same problem. Of a folder of problems, a table shows how many times as long
    as the fastest plan those of planners take. Exit code 0: done; 1: a problem has no feasible plan, or a plan is
    faster than the one proved to be the fastest, which is a bug in nest; 2: bad input.
    """
    from nest.report.text.comparison import comparison_text
    from nest.report.text.ratios import ratios_text, ratios_to_ours

    if listing:
        from nest.whatif.compare import planner_rows

        show_listing(as_json, "planners", planner_rows(), {"name": "name", "plans": "summary", "from": "distribution"})
        return
    if problem is None:
        raise InputError("nest compare takes a problem file; `nest compare --list` lists the planners.")
    files = {"megatron": from_megatron} if from_megatron else {}
    for name, file in (*context.meta[FILES], *([from_file] if from_file else [])):
        files.setdefault(name, []).append(file)
    if not files and any(option is not None for option in (nodes, devices_per_node, part)):
        raise InputError("--nodes, --devices-per-node and --part go with flags; give --from or --from-megatron.")
    steps = StepLine()
    with progress_line("searching") as progress, ExitStack() as ended:
        ended.callback(steps.clear)
        compared = partial(
            api.compare,
            planners=planners or None,
            plans=plans,
            flags=files,
            options=launch_options(context, nodes, devices_per_node, part),
            seed=seed,
            evaluations=evaluations,
            time_limit=time_limit,
            planner_limit=planner_limit,
            progress=progress,
            step=steps.tell,
            unbeaten=False,  # All is shown first.
            timings=timings,
        )
        found = {file: compared(file) for file in _problems(problem)}
    warn_of_plugins()
    for comparison in found.values():
        note_assumed(comparison.ours.problem["cluster"].get("assumed", ()))
    documents = {file: comparison.to_dict() for file, comparison in found.items()}
    if not problem.is_dir():
        show(as_json, documents[problem], lambda screen: comparison_text(documents[problem], screen))
    elif as_json:
        for file, document in documents.items():
            typer.echo(to_json({"file": str(file), **document}, one_line=True))
    else:
        alone = len({file.stem for file in documents}) == len(documents)
        named = {file.stem if alone else file.name: document for file, document in documents.items()}
        typer.echo(ratios_text(ratios_to_ours(named), screen()))
    for comparison in found.values():
        comparison.assert_unbeaten()
    if any(comparison.ours.status == "infeasible" for comparison in found.values()):
        raise typer.Exit(NO_PLAN)


def _problems(path: Path) -> list[Path]:
    """The file, or the problem files of a folder by name."""
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES)
    if not found:
        raise InputError(f"{path} holds no problem file ({', '.join(SUFFIXES)}).")
    return found
