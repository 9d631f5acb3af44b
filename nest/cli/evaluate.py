"""`nest evaluate`: the price of a decided plan, or of a run by a framework's flags."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from attrs import evolve

from nest import api
from nest.cli.options import (
    DEVICES_PER_NODE,
    FILES,
    MODEL,
    NODES,
    PART,
    RELEASE,
    STRICT_PLUGINS,
    TOKENS,
    VOCABULARY,
    ScriptCommand,
    changes_of,
    launch_options,
)
from nest.cli.output import NO_PLAN, note, note_once, note_plan, screen, to_json, warn, warn_of_plugins
from nest.cli.progress import progress_line
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.report.text.layout import paragraph

if TYPE_CHECKING:
    from nest.deployment import LaunchOptions
    from nest.formulate.from_flags import Start
    from nest.spec import PlanDocument, Problem


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("evaluate", cls=ScriptCommand)(evaluate)


def evaluate(
    context: typer.Context,
    problems: list[Path] = typer.Argument(
        None, metavar="[PROBLEM...]", help="Problem files: YAML, JSON or TOML; optional with --from."
    ),
    fix: list[str] = typer.Option([], "--fix", metavar="NAME=VALUE", help="Decision, such as tp=8; repeatable."),
    tokens: str | None = TOKENS,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
    from_megatron: Path | None = typer.Option(
        None, "--from-megatron", metavar="FILE", help="Short for --from megatron FILE."
    ),
    from_file: tuple[str, Path] | None = typer.Option(
        None, "--from", metavar="NAME FILE", help="Launch script, such as megatron FILE."
    ),
    cluster: str | None = typer.Option(None, "--cluster", metavar="NAME|FILE", help="With --from: cluster of the run."),
    nodes: int | None = NODES,
    devices_per_node: int | None = DEVICES_PER_NODE,
    part: str | None = PART,
    release: str | None = RELEASE,
    vocabulary: int | None = VOCABULARY,
    model: str | None = MODEL,
    against_best: bool = typer.Option(False, "--against-best", help="Compare with the recommended plan."),
    write_problem: Path | None = typer.Option(
        None, "--write-problem", metavar="FILE", help="With --from: write the run's problem, parallelism open."
    ),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Predict time and memory of a given plan or launch script.

    The plan is `fixed` of the problem, or a script (its arguments follow `--`). Open decisions take the usual default:
    degree 1, ZeRO 0, 1F1B, all devices, even stages. Plans that do not fit or violate constraints are not refused.
    Exit code 0: done; 2: bad input.
    """
    from nest.io import structure
    from nest.spec import Problem
    from nest.whatif.solver import devices_used

    decisions = dict(_decision(text) for text in fix)
    if from_megatron is not None:
        if from_file is not None:
            raise InputError("--from-megatron FILE is short for --from megatron FILE; give one of them.")
        from_file = ("megatron", from_megatron)
    if from_file is not None:
        if context.meta.get(FILES):
            raise InputError("--from is given more than once; compare several files with `nest compare`.")
        if tokens is not None:
            raise InputError("--tokens needs a problem file; with --from, set training.tokens in a problem.")
        framework, flags = from_file
        if write_problem is not None:
            from nest.io import check_writable

            check_writable(write_problem, flags, *problems or [])
        options = launch_options(context, nodes, devices_per_node, part, release)
        started = started_run(framework, flags, problems or [], cluster, options, vocabulary, model)
        _evaluate_run(started, framework, flags, decisions, against_best, write_problem, as_json)
        return
    of_flags = (cluster, nodes, devices_per_node, part, release, vocabulary, model, write_problem)
    if any(option is not None for option in of_flags):
        raise InputError(
            "--cluster, --nodes, --devices-per-node, --part, --for, --vocabulary, --model and --write-problem need "
            "--from or --from-megatron."
        )
    if not problems:
        raise InputError("nest evaluate needs a problem file, or --from or --from-megatron.")
    if against_best and len(problems) > 1:
        raise InputError("--against-best takes one problem; evaluate the problems one by one.")
    for problem in problems:
        implied: list[str] = []
        plan = api.evaluate(problem, fix=decisions, message=implied.append, changes=changes_of(tokens=tokens))
        note_plan(plan, problem)
        changes, best = "", None
        if not as_json and len(problems) == 1:
            note_once(implied)
            run = structure(plan.problem, Problem)
            if run.model is not None and not run.cluster.pools:
                changes = told_changes(run, plan, run.search.target)
        if against_best:
            opened = evolve(structure(plan.problem, Problem), fixed=None)
            best = _best(opened, devices_used(plan), problem)
        _print(plan, changes, best, as_json, one_line=len(problems) > 1)


def _decision(text: str) -> tuple[str, object]:
    """Parse `NAME=VALUE` into a name and a number, truth value, list or word."""
    from nest.io import read_value

    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise InputError(f"--fix takes NAME=VALUE, such as --fix tp=8; got {text!r}.")
    return name.strip(), read_value(value.strip())


def _evaluate_run(
    started: "Start",
    framework: str,
    flags: Path,
    decisions: Mapping[str, object],
    against_best: bool,
    write_problem: Path | None,
    as_json: bool,
) -> None:
    """Price the run of a framework's file and print the result."""
    from nest.io import write_text

    run = registry().run(lambda: started.decided(decisions, registry()))
    plan = api.evaluate(run)
    opened = started.opened(framework) if against_best or write_problem is not None else None
    if opened is not None and write_problem is not None:
        write_text(write_problem, to_json(opened.to_dict()) + "\n")
    best = _best(opened, started.devices, flags) if against_best and opened is not None else None
    warn_of_plugins()
    for each in plan.violates:
        warn(f"{flags}: the constraint `{each}` is violated by this plan.")
    _print(plan, "" if as_json else told_changes(run, plan, framework, started.devices, flags), best, as_json)


def _best(opened: "Problem", devices: int | None, place: Path) -> "PlanDocument":
    """Search the best plan of a problem with open decisions on so many devices; None: all."""
    from nest.whatif.nodes import on_devices

    as_many, told = on_devices(opened, devices, registry())
    if told:
        note(f"note: {place}: {told}")
    with progress_line("searching") as progress:
        return api.solve(as_many, progress=progress)


def _print(
    plan: "PlanDocument", changes: str, best: "PlanDocument | None", as_json: bool, *, one_line: bool = False
) -> None:
    """Print the plan as given, its single changes and the best plan.

    Raises:
        typer.Exit: there is no best plan.
    """
    from nest.report.text.summary import summary

    if as_json or one_line:
        document = plan.to_dict()
        typer.echo(to_json(document if best is None else {"plan": document, "best": best.to_dict()}, one_line=one_line))
    else:
        parts = [summary(plan, screen()), changes]
        if best is not None:
            compared = _compared(plan.batch_time or 0.0, best.batch_time)
            parts += [paragraph(compared, screen()), summary(best, screen())]
        typer.echo("\n\n".join(filter(None, parts)))
    if best is not None and best.batch_time is None:
        raise typer.Exit(NO_PLAN)


def started_run(
    framework: str,
    flags: Path,
    problems: list[Path],
    cluster: str | None,
    options: "LaunchOptions",
    vocabulary: int | None,
    model: str | None,
) -> "Start":
    """Read the run of a framework's file and print its notes."""
    from nest.formulate.from_flags import start

    if len(problems) > 1:
        raise InputError("--from takes at most one problem; remove the others.")
    problem = next(iter(problems), None)
    started = registry().run(
        lambda: start(flags, framework, problem, cluster=cluster, options=options, vocabulary=vocabulary, model=model)
    )
    for text in started.notes:
        note(f"note: {flags}: {text}")
    return started


def changes_of_run(
    run: "Problem", plan: "PlanDocument", fits: bool, target: str | None, devices: int | None, file: Path | None
) -> list[dict[str, Any]]:
    """Return the nearest changes that fit or, if the run `fits`, those that gain."""
    from nest.whatif.changes import changes_of

    changes = changes_of(run, plan, target, registry(), devices, file)
    return registry().run(lambda: [each.to_dict() for each in (changes.gaining if fits else changes.fitting)()])


def told_changes(
    run: "Problem", plan: "PlanDocument", target: str | None, devices: int | None = None, file: Path | None = None
) -> str:
    """Describe these changes in text."""
    from nest.formulate.risk import accepted_risk
    from nest.report.text.changes import changes_text

    changes = changes_of_run(run, plan, plan.fits, target, devices, file)
    risk = accepted_risk(run.training, run.model)
    return changes_text(plan.fits, risk, changes, plan.batch_time or 0.0, screen())


def _compared(today: float, best: float | None) -> str:
    from nest.units import percent

    if best is None:
        return "No plan fits the memory of this cluster."
    if best > today:
        return f"This run may not fit. The best plan that fits is {percent(best / today - 1)} slower:"
    return f"The best plan takes {percent(1 - best / today)} less time per step ({today / best:.2f}x as fast):"
