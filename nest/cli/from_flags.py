"""What flags of a framework run today: its price, and how far it is from the best plan."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from attrs import frozen

from nest.cli.output import NO_PLAN, note, screen, tell_violated, to_json, warn
from nest.cli.progress import progress_line


@frozen
class Asked:
    """What the command line asks.

    Attributes:
        flags: file of flags.
        framework: name of the exporter that reads them.
        problems: files given beside it, at most one.
        cluster: name or file of a cluster.
        nodes: machines the flags are launched on.
        vocabulary: tokens of the vocabulary.
        decisions: those of `--fix`, which win over the flags.
        against_best: whether to search for the best plan, too.
        write_problem: where to write the problem with every decision open.
        as_json: whether to print JSON.
    """

    flags: Path
    framework: str
    problems: tuple[Path, ...]
    cluster: str | None
    nodes: int | None
    vocabulary: int | None
    decisions: Mapping[str, Any]
    against_best: bool
    write_problem: Path | None
    as_json: bool


def evaluate_flags(asked: Asked) -> None:
    """Price the flags and print the result.

    Raises:
        InputError: the flags or what goes with them cannot be used.
    """
    from nest import api
    from nest.errors import InputError
    from nest.formulate.from_flags import start
    from nest.hooks.registry import registry
    from nest.io import check_writable, write_text
    from nest.report import summary
    from nest.report.paragraph import paragraph

    if len(asked.problems) > 1:
        raise InputError("--from-megatron takes one problem at most, which says what the flags do not.")
    if asked.write_problem is not None:
        check_writable(asked.write_problem, asked.flags, *asked.problems)
    found = start(
        asked.flags,
        asked.framework,
        next(iter(asked.problems), None),
        cluster=asked.cluster,
        nodes=asked.nodes,
        vocabulary=asked.vocabulary,
    )
    for text in found.notes:
        note(f"note: {asked.flags}: {text}")
    plan = api.evaluate(found.problem, fix=asked.decisions or None)
    opened = found.opened(asked.framework) if asked.against_best or asked.write_problem is not None else None
    if opened is not None and asked.write_problem is not None:
        write_text(asked.write_problem, json.dumps(opened.to_dict(), indent=2, ensure_ascii=False) + "\n")
    best = None
    if asked.against_best and opened is not None:
        with progress_line("searching") as progress:
            best = api.solve(opened, progress=progress)
    warn(registry().warnings)
    tell_violated(plan.violates, asked.flags)
    if asked.as_json:
        document = plan.to_dict()
        typer.echo(to_json(document if best is None else {"plan": document, "best": best.to_dict()}))
    else:
        typer.echo(summary(plan, screen()))
        if best is not None:
            told = _compared(plan.batch_time or 0.0, best.batch_time)
            typer.echo(f"\n{paragraph(told, screen())}\n\n{summary(best, screen())}")
    if best is not None and best.batch_time is None:
        raise typer.Exit(NO_PLAN)


def _compared(today: float, best: float | None) -> str:
    """How much less time the best plan takes."""
    if best is None:
        return "No plan fits the memory of this cluster."
    if best > today:
        return f"The best plan that fits takes {best / today - 1:.1%} more time a batch than the flags:"
    return f"The best plan takes {1 - best / today:.1%} less time a batch, {today / best:.2f} times as fast:"
