"""Results as text, Markdown and JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import asdict

from benchmarks.scale.command import Timing
from benchmarks.scale.outcome import Outcome

HEADINGS = ("name", "formulate s", "solve s", "process s", "memory MB", "limit", "", "what")
WIDTHS = (26, 11, 9, 9, 9, 36, 4)


def cells(outcome: Outcome) -> tuple[str, ...]:
    """One row of the table."""
    return (
        outcome.name,
        seconds(outcome.formulate),
        seconds(outcome.solve),
        seconds(outcome.process),
        f"{outcome.memory / 1e6:.0f}",
        outcome.limit,
        outcome.mark,
        outcome.what,
    )


COMMAND_HEADINGS = ("name", "CPU s", "scaled", "clock s", "memory MB", "limit", "", "CPU, clock, memory", "what")
COMMAND_WIDTHS = (22, 8, 8, 8, 9, 14, 4, 18)


def command_cells(timing: Timing) -> tuple[str, ...]:
    """One row of the table of commands; ratios are this tree's figures over the other's."""
    here, there = timing.here, timing.there
    pairs = () if there is None else ((here.cpu, there.cpu), (here.seconds, there.seconds), (here.memory, there.memory))
    return (
        timing.command.name,
        f"{here.cpu:.2f}",
        f"{timing.scaled:.2f}",
        f"{here.seconds:.2f}",
        f"{here.memory / 1e6:.0f}",
        timing.command.limit,
        "FAIL" if timing.failures else "pass",
        ", ".join(f"{one / other:.2f}" for one, other in pairs) or "-",
        timing.command.what,
    )


def seconds(value: float | None) -> str:
    """Seconds to the millisecond; `-` for those not measured."""
    return "-" if value is None else f"{value:.3f}"


def line(row: Sequence[str], widths: Sequence[int] = WIDTHS) -> str:
    """A row in columns: figures to the right, words to the left, the last as long as it is."""
    padded = [
        text.rjust(width) if 1 <= index <= 4 else text.ljust(width)
        for index, (text, width) in enumerate(zip(row, widths, strict=False))
    ]
    return "  ".join([*padded, *row[len(widths) :]]).rstrip()


def closing(outcomes: Sequence[Outcome], timings: Sequence[Timing] = ()) -> list[str]:
    """What failed and why, and how many passed."""
    every = [*((each.name, each.failures) for each in outcomes), *((t.command.name, t.failures) for t in timings)]
    told = [f"{name}: {'; '.join(failures)}" for name, failures in every if failures]
    return [*told, f"{len(every) - len(told)} of {len(every)} pass"]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table in Markdown; none without rows."""
    if not rows:
        return []
    lines = ["", f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    return [*lines, *(f"| {' | '.join(text.replace('|', '/') for text in row)} |" for row in rows)]


def markdown(
    machine: Mapping[str, str], outcomes: Sequence[Outcome], plots: Sequence[str], timings: Sequence[Timing] = ()
) -> str:
    """The results as a page."""
    lines = [f"# Scale, {machine['date']}", ""]
    lines += ["How to read this: [Scale](../../README.md#scale).", ""]
    lines += [f"* {name}: {value}" for name, value in machine.items()]
    lines += table(HEADINGS, [cells(each) for each in outcomes])
    lines += table(COMMAND_HEADINGS, [command_cells(each) for each in timings])
    lines += ["", *(f"* {told}" for told in closing(outcomes, timings))]
    growth = [each for each in outcomes if each.details.get("points")]
    for each in growth:
        lines += ["", f"## {each.name}", "", each.what, ""]
        lines += [f"| {each.details['axis']} | formulate s | solve s | memory MB |", "|---|---|---|---|"]
        lines += [
            f"| {p['size']:,} | {p['formulate']:.3f} | {p['solve']:.3f} | {p['memory'] / 1e6:.0f} |"
            for p in each.details["points"]
        ]
    for plot in plots:
        lines += ["", f"![{plot}]({plot})"]
    return "\n".join(lines) + "\n"


def write(
    folder: Path,
    machine: Mapping[str, str],
    outcomes: Sequence[Outcome],
    plots: Sequence[str],
    timings: Sequence[Timing] = (),
) -> None:
    """Write `scale.md` and `scale.json`."""
    (folder / "scale.md").write_text(markdown(machine, outcomes, plots, timings), encoding="utf-8")
    document = {
        "machine": dict(machine),
        "outcomes": [{**asdict(each), "mark": each.mark} for each in outcomes],
        "commands": [
            {
                "name": each.command.name,
                "here": asdict(each.here),
                "there": None if each.there is None else asdict(each.there),
                "scaled": each.scaled,
                "failures": each.failures,
            }
            for each in timings
        ],
    }
    (folder / "scale.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
