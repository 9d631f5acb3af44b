"""`nest shortlist`: the plans to launch before one is taken, ranked again after each launch."""

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nest.errors import InputError
from nest.hooks.registry import registry
from nest.public.commands import STRICT_PLUGINS, screen, seconds, to_json, warn_of_plugins
from nest.public.layout import Screen, paragraph, table
from nest.units import format_seconds, listed, percent

if TYPE_CHECKING:
    from nest.spec import PlanDocument, UnknownFact
    from nest_calibrate.shortlist import Ranking

LEAST = 0.01
"""Least share of a step that a further launch must be expected to save, as `search.within`."""

FAILED = "oom"


def shortlist(
    plan: Path = typer.Argument(..., metavar="PLAN", help="Plan file from `nest solve`."),
    measured: list[str] = typer.Option(
        [], "--measured", metavar="NAME=TIME", help="Step time of a plan, such as safer=21.3s or safer=oom; repeatable."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="DIR", help="Write a plan file for each plan to this folder."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Rank the plans to launch by their measured step times.

    Launch the plans in the order given, add each time with `--measured`, and stop when no further launch is expected
    to gain 1 %. Exit code 0: done; 2: bad input.
    """
    from nest.io import write_files
    from nest.public.planning import read_plan
    from nest_calibrate.shortlist import choices_of, names_of, plan_of, ranked, spread_of

    read, known = read_plan(plan), registry(strict=strict_plugins)
    if read.batch_time is None:
        raise InputError(f"{plan} has no plan: {read.diagnosis}")
    times = _times(measured, read)
    plans = {name: plan_of(read, name, known) for name in names_of(read)}
    ranking = ranked(choices_of(plans, times), spread_of(read), LEAST)
    warn_of_plugins()
    if output is not None:
        write_files(output, {f"{name}.json": to_json(each.to_dict()) + "\n" for name, each in plans.items()})
    if as_json:
        typer.echo(to_json(ranking.to_dict(), one_line=False))
    else:
        typer.echo(_text(ranking, plans, read.unknown, screen()))


def _times(measured: Sequence[str], plan: "PlanDocument") -> dict[str, float | None]:
    """Seconds by name of a plan; None: out of memory."""
    from nest_calibrate.shortlist import names_of

    found: dict[str, float | None] = {}
    for text in measured:
        name, _, time = (part.strip() for part in text.partition("="))
        key = name.replace("-", "_")
        if key not in names_of(plan):
            raise InputError(f"--measured {text}: the plans are {listed([_shown(each) for each in names_of(plan)])}.")
        found[key] = None if time.lower() == FAILED else seconds(time)
        if found[key] is not None and not 0 < (found[key] or 0.0) < inf:
            raise InputError(
                f"--measured {text}: a step takes more than 0 s; write `{FAILED}` if it ran out of memory."
            )
    return found


def _shown(name: str) -> str:
    return name.replace("_", "-")


def _text(
    ranking: "Ranking", plans: "Mapping[str, PlanDocument]", unknown: "Sequence[UnknownFact]", shown_on: Screen
) -> str:
    """The plans in a table, what their times tell, and the next launch."""
    from nest.public.text import layout_difference, layout_text  # It loads NumPy, which `nest --help` does without.
    from nest_calibrate.shortlist import TAKEN

    rows = []
    for each in ranking.choices:
        layout = (
            layout_text(plans["plan"])
            if each.name == "plan"
            else ", ".join(layout_difference(plans["plan"], plans[each.name]))
        )
        measured = "out of memory" if each.failed else "-" if each.measured is None else format_seconds(each.measured)
        gain = ranking.gains.get(each.name)
        rows.append(
            (
                _shown(each.name),
                format_seconds(each.predicted[TAKEN]),
                measured,
                "-" if each.failed else format_seconds(ranking.expected[each.name]),
                "-" if gain is None else percent(gain),
                layout,
            )
        )
    header = ("plan", "predicted", "measured", "expected", "gain", "layout, then differences")
    lines = [table(header, rows, (1, 2, 3, 4), shown_on), ""]
    if ranking.level is not None:
        lines.append(paragraph(f"Your runs take {ranking.level:.2f} times the predicted time.", shown_on))
    for fact in unknown if ranking.level is not None else ():
        if (likely := ranking.cases[fact.key]) >= 0.5:
            lines.append(paragraph(f"Probably training.{fact.key} is {fact.other} ({percent(likely, 0)}).", shown_on))
    best = ranking.best
    if ranking.following is not None:
        lines.append(paragraph(f"Next launch: {_shown(ranking.following)}.", shown_on))
    elif best is not None:
        lines.append(
            paragraph(f"Stop: take {_shown(best.name)}. No launch is expected to gain {percent(LEAST, 0)}.", shown_on)
        )
    else:
        lines.append(paragraph("Every plan ran out of memory; solve with a smaller training.memory_risk.", shown_on))
    return "\n".join(lines)
