"""Results as text, Markdown and JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import asdict

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


def seconds(value: float | None) -> str:
    """Seconds to the millisecond; `-` for those not measured."""
    return "-" if value is None else f"{value:.3f}"


def line(row: Sequence[str]) -> str:
    """A row in columns: figures to the right, words to the left, the last as long as it is."""
    padded = [
        text.rjust(width) if 1 <= index <= 4 else text.ljust(width)
        for index, (text, width) in enumerate(zip(row, WIDTHS, strict=False))
    ]
    return "  ".join([*padded, *row[len(WIDTHS) :]]).rstrip()


def closing(outcomes: Sequence[Outcome]) -> list[str]:
    """What failed and why, and how many passed."""
    failed = [each for each in outcomes if each.failures]
    told = [f"{each.name}: {'; '.join(each.failures)}" for each in failed]
    return [*told, f"{len(outcomes) - len(failed)} of {len(outcomes)} pass"]


def markdown(machine: Mapping[str, str], outcomes: Sequence[Outcome], plots: Sequence[str]) -> str:
    """The results as a page."""
    lines = [f"# Scale, {machine['date']}", ""]
    lines += ["How to read this: [Scale](../../README.md#scale).", ""]
    lines += [f"* {name}: {value}" for name, value in machine.items()]
    lines += ["", f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(text.replace('|', '/') for text in cells(each))} |" for each in outcomes]
    lines += ["", *(f"* {told}" for told in closing(outcomes))]
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


def write(folder: Path, machine: Mapping[str, str], outcomes: Sequence[Outcome], plots: Sequence[str]) -> None:
    """Write `scale.md` and `scale.json`."""
    (folder / "scale.md").write_text(markdown(machine, outcomes, plots), encoding="utf-8")
    document = {"machine": dict(machine), "outcomes": [{**asdict(each), "mark": each.mark} for each in outcomes]}
    (folder / "scale.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
