"""`nest compare`: our plan beside those of other planners."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import typer

from nest.errors import InputError
from nest.io.source import SUFFIXES
from nest.public.commands import (
    DEVICES_PER_NODE,
    FILES,
    JSON,
    NO_PLAN,
    NODES,
    PART,
    RELEASE,
    STRICT_PLUGINS,
    ScriptCommand,
    StepLine,
    complete_planners,
    launch_options,
    note_assumed,
    progress_line,
    screen,
    show,
    show_listing,
    to_json,
    warn_of_plugins,
)
from nest.public.commands import time_limit as time_limit_option
from nest_whatif import verbs
from nest_whatif.verbs import EVALUATIONS, SEED


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare", cls=ScriptCommand)(compare)


def compare(
    context: typer.Context,
    problem: Path | None = typer.Argument(
        None, metavar="PROBLEM", help="Problem file (YAML, JSON or TOML) or a folder of them."
    ),
    planners: list[str] = typer.Option(
        [],
        "--planner",
        metavar="NAME",
        autocompletion=complete_planners,
        help="Planner, such as mcmc:seed=3; repeatable.",
    ),
    plans: list[Path] = typer.Option(
        [], "--plan", metavar="FILE", help="Plan file to price on this problem; repeatable."
    ),
    from_megatron: list[Path] = typer.Option(
        [], "--from-megatron", metavar="FILE", help="Short for --from megatron FILE."
    ),
    from_file: tuple[str, Path] | None = typer.Option(
        None, "--from", metavar="NAME FILE", help="Launch script or configuration; repeatable."
    ),
    nodes: int | None = NODES,
    devices_per_node: int | None = DEVICES_PER_NODE,
    part: str | None = PART,
    release: str | None = RELEASE,
    seed: int = typer.Option(
        SEED, "--seed", metavar="N", show_default=False, help=f"Seed of randomised planners; default {SEED}."
    ),
    evaluations: int = typer.Option(
        EVALUATIONS,
        "--evaluations",
        metavar="N",
        show_default=False,
        help=f"Plans a sampling planner may try; default {EVALUATIONS}.",
    ),
    time_limit: float | None = time_limit_option("Limit per search; keeps the best plan so far."),
    planner_limit: float | None = time_limit_option("Limit per planner; plug-ins: 5 s.", "--planner-time-limit"),
    timings: bool = typer.Option(False, "--timings", help="Print how long each planner took."),
    listing: bool = typer.Option(False, "--list", help="List the planners."),
    as_json: bool = JSON,
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Compare the best plan with planners, plan files and scripts.

    A folder of problems gives a table of ratios per planner. Exit code 0: done; 1: no feasible plan, or a plan beats
    a proved bound (a bug in nest); 2: bad input.
    """
    from nest_whatif.text.comparison import comparison_text
    from nest_whatif.text.ratios import ratios_text, ratios_to_ours

    if listing:
        from nest_whatif.compare import planner_rows

        show_listing(as_json, "planners", planner_rows(), {"name": "name", "plans": "summary", "from": "distribution"})
        return
    if problem is None:
        raise InputError("nest compare needs a problem file; `nest compare --list` lists the planners.")
    files = {"megatron": from_megatron} if from_megatron else {}
    for name, file in (*context.meta[FILES], *([from_file] if from_file else [])):
        files.setdefault(name, []).append(file)
    if not files and any(option is not None for option in (nodes, devices_per_node, part, release)):
        raise InputError("--nodes, --devices-per-node, --part and --for need --from or --from-megatron.")
    steps = StepLine()
    with progress_line("searching") as progress, ExitStack() as ended:
        ended.callback(steps.clear)
        compared = partial(
            verbs.compare,
            planners=planners or None,
            plans=plans,
            flags=files,
            options=launch_options(context, nodes, devices_per_node, part, release),
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
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES)
    if not found:
        raise InputError(f"{path} has no problem files ({', '.join(SUFFIXES)}).")
    return found
