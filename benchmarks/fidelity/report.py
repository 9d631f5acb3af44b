"""Figures as text, Markdown and JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.fidelity.ablation import Effect
from benchmarks.fidelity.figures import COLUMNS, Figures, PeerRow
from benchmarks.fidelity.ranking import CLOSE, Agreement
from benchmarks.fidelity.statistics import Errors

HEADINGS = {"catalogue": "catalogue", "validated": "other families", "constant": "constant utilisation"}
"""Of the predictions, as tables name them."""

NAME = 24
"""Characters of the first column."""


def cell(found: Errors | None) -> str:
    """Mean, median, bias and worst."""
    if found is None:
        return f"{'-':>27}"
    return f"{percent(found.mean)} {percent(found.median)} {found.bias:>6.2f} {percent(found.worst)}"


def percent(share: float) -> str:
    """A share in 6 characters."""
    return f"{100 * share:.1f}%".rjust(6)


def text(found: Figures) -> list[str]:
    """All figures, as lines."""
    refused = sum(found.refused.values())
    lines = [f"{found.priced + refused} runs: {found.priced} priced, {refused} refused"]
    lines += [f"{count:4} {why}" for why, count in sorted(found.refused.items(), key=lambda item: (-item[1], item[0]))]
    if found.priced:
        lines += ["", *_errors(found), *_peers(found.peers), *_memory(found), *_ranking(found.ranking)]
    return lines


def _errors(found: Figures) -> list[str]:
    lines = [f"{'step time':{NAME}}{'runs':>5}" + "".join(f"{HEADINGS[each]:>30}" for each in COLUMNS)]
    lines += [" " * (NAME + 5) + "     mean median   bias  worst" * len(COLUMNS)]
    kind = None
    for row in found.errors:
        if row.kind != kind:
            kind = row.kind
            lines.append(f"by {kind}" if kind != "all" else "")
        lines.append(f"{row.name:{NAME}}{row.count:>5}" + "".join(f"   {cell(row.columns[c])}" for c in COLUMNS))
    return lines


def _peers(rows: Sequence[PeerRow]) -> list[str]:
    if not rows:
        return []
    lines = ["", f"{'beside a peer':{NAME}}{'runs':>5}     mean median   bias  worst"]
    for row in rows:
        told = {row.tool: row.peer, **{HEADINGS[name]: each for name, each in row.columns.items()}}
        lines += [f"{row.group}"]
        lines += [f"  {name:{NAME - 2}}{row.peer.count:>5}   {cell(each)}" for name, each in told.items()]
    return lines


def _memory(found: Figures) -> list[str]:
    if not found.memory:
        return []
    lines = ["", f"{'peak memory':{NAME}}{'runs':>5}     mean median   bias  worst   measured above the upper estimate"]
    return lines + [
        f"{row.group:{NAME}}{row.errors.count:>5}   {cell(row.errors)}   {row.above}" for row in found.memory
    ]


def _ranking(rows: Mapping[str, Agreement]) -> list[str]:
    if not rows:
        return []
    heading = f"{'sets':>5}{'plans':>7}{'rank correlation':>18}{'least':>7}{'regret':>9}{'worst':>8}"
    lines = ["", f"{'plans for one task':{NAME}}{heading}{f'within {CLOSE:.0%}':>12}{'pairs':>7}{'right':>7}"]
    return lines + [
        f"{name:{NAME}}{each.sets:>5}{each.plans:>7}{figure(each.correlation):>18}{figure(each.least):>7}"
        f"{percent(each.regret):>9}{percent(each.worst):>8}{100 * each.close:>10.0f} %{each.pairs:>7}{each.right:>7}"
        for name, each in rows.items()
    ]


def effects_text(effects: Sequence[Effect]) -> list[str]:
    """What each term switched off does, the most harmful first, as lines; those that do nothing last.

    Args:
        effects: the first one of nothing at all.
    """
    base = effects[0]
    head = f"{'without':{NAME}}{'runs':>5}{'others kept':>13}{'fitted again':>14}"
    lines = [f"{head}{'correlation':>13}{'regret':>8}{'worst':>8}  group hurt most", _effect(base)]
    idle = [each for each in effects[1:] if each.idle(base.fitted)]
    for each in sorted(effects[1:], key=lambda effect: -effect.fitted):
        if each not in idle:
            lines.append(
                f"{_effect(each)}  {each.hurt} {percent(each.before).strip()} to {percent(each.after).strip()}"
            )
    if idle:
        lines += ["", "terms that do nothing here, and the predictions they have a part in:"]
        lines += [f"{each.term:{NAME}}{each.runs:>5}" for each in idle]
    return lines


def _effect(each: Effect) -> str:
    ranked = " " * 29 if each.ranking is None else _order(each.ranking)
    return f"{each.term:{NAME}}{each.runs:>5}{percent(each.kept):>13}{percent(each.fitted):>14}{ranked}"


def _order(each: Agreement) -> str:
    return f"{figure(each.correlation):>13}{percent(each.regret):>8}{percent(each.worst):>8}"


def figure(value: float | None) -> str:
    """A correlation; `-` where there is none."""
    return "-" if value is None else f"{value:.2f}"


def write(folder: Path, name: str, command: str, lines: Sequence[str], found: object) -> None:
    """Write `NAME.md` and `NAME.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    page = [f"# {name.capitalize()}", "", "How to read this: [Fidelity](../../../README.md#fidelity).", ""]
    page += ["```text", f"$ {command}", *lines, "```"]
    (folder / f"{name}.md").write_text("\n".join(page) + "\n", encoding="utf-8")
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
