"""An explanation of a plan in figures, tables and a few sentences."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nest.instance import recompute_words
from nest.public.changes import MEMORY_NAMES, SHARE_NAMES, decision_text, less_bandwidth, ranges, trained_text
from nest.public.layout import WIDE, Screen, Tone, figures, opening, paragraph, table
from nest.public.text import Decided, counted, difference, whole
from nest.tolerances import AGREEMENT, HARDLY_FASTER
from nest.units import format_bytes, format_seconds, likelihood, percent, three_digits
from nest_whatif.text.tables import (
    FREEING,
    UNPROVED,
    Answer,
    alternative_notes,
    alternative_rows,
    because,
    by_refusal,
    freeing_rows,
    restriction,
    without_alternative,
)

STEPS = ("plan", "binding", "best", "constraints", "pools", "alternatives", "flips", "loses")
"""Steps in which an explanation is found and shown."""

_UNITS = {"bytes/s": (1e9, "GB/s"), "FLOP/s": (1e12, "TFLOP/s")}
"""Units of varied numbers for people, with their size in SI units."""

_MARK = "*"  # Mark of results of an unfinished search.


def explanation_text(answer: Answer, screen: Screen = WIDE) -> str:
    """Describe an explanation (`nest_whatif.explain.Explanation.to_dict`) in sections."""
    return "\n\n".join(section for step in STEPS if (section := explanation_section(answer, step, screen)))


def explanation_section(answer: Answer, step: str, screen: Screen = WIDE) -> str:
    """Describe the part of an explanation that a step adds; empty: nothing.

    Args:
        answer: `nest_whatif.explain.Explanation.to_dict`, of which only the step's findings are read.
        step: of `STEPS`.
    """
    if step == "plan":
        return _headline(answer, screen)
    if step == "best":
        return _caveat(answer, screen)
    if step == "binding" and answer["binding"]:
        return _section("Bottlenecks", [binding_text(answer["binding"], screen)], screen)
    if step == "constraints" and step in answer["parts"]:
        lines = _prices(answer["constraints"], answer["best_decided"], screen)
        return _section("Cost of restrictions", lines, screen)
    if step == "pools" and answer.get("pools"):
        return _section("Value of pools", _pools(answer["pools"], answer["best_decided"], screen), screen)
    if step == "alternatives" and answer["alternatives"]:
        lines = _alternatives(answer["alternatives"], answer["decided"], answer["apart"], screen)
        return _section("Best alternatives", lines, screen)
    if step == "flips" and step in answer["parts"]:
        lines = _breakpoints(answer["flips"], answer["best_decided"], screen)
        return _section("Sensitivity", lines, screen)
    if step == "loses" and (loses := answer["loses"]) is not None:
        rival = "Another plan" if loses["to"] is None else f"The runner-up ({loses['to']})"
        return paragraph(f"{rival} wins if {less_bandwidth(loses['bandwidths'], loses['less'])}.", screen)
    return ""


PROVED = {"optimal": ("Optimal plan:", Tone.GOOD), "near-optimal": ("Near-optimal plan:", Tone.GOOD)}
"""Begin of a headline, by the status of a proved plan."""


def _headline(answer: Answer, screen: Screen) -> str:
    if answer["status"] == "infeasible":
        return opening("No feasible plan.", Tone.BAD, f" {answer['diagnosis']}", screen)
    proof, tone = PROVED.get(answer["status"], ("Best plan found:", Tone.FAIR))
    if not answer["searched"]:
        proof, tone = "Plan as given:", Tone.HEADING
    trained = f"; training {trained_text(answer['trained'])}" if answer.get("trained") else ""
    text = f" {whole(answer['decided'])}; {format_seconds(answer['batch_time'])} per step{trained}"
    return opening(proof, tone, text, screen)


def _caveat(answer: Answer, screen: Screen) -> str:
    """Note that the explained plan is not the best of its problem."""
    best = answer["best_batch_time"]
    if answer["status"] == "infeasible":
        return ""
    if best is None:
        return paragraph(
            f"nest priced this plan; a search of its problem finds none. {answer['best_diagnosis']}", screen
        )
    if best >= answer["batch_time"] * (1 - AGREEMENT):
        return ""
    then = difference(answer["decided"], answer["best_decided"])
    return paragraph(
        f"The best plan takes {format_seconds(best)} ({then}); this one is "
        f"{percent(answer['batch_time'] / best - 1)} slower. The sections below describe the best plan.",
        screen,
    )


def _section(title: str, lines: Sequence[str], screen: Screen) -> str:
    heading = [screen.paint(line, Tone.HEADING) for line in paragraph(title, screen).split("\n")]
    return "\n".join([*heading, *(lines or ["Nothing found."])])


def _with_notes(lines: Sequence[str], notes: Sequence[str], screen: Screen) -> list[str]:
    return [*lines, *([""] if lines and notes else []), *(paragraph(note, screen, indent=2) for note in notes)]


def _prices(prices: Sequence[Answer], best: Decided, screen: Screen) -> list[str]:
    """Describe the cost of each restriction, the dearest first; without a plan, those that prevent one."""
    dearest = sorted(prices, key=lambda each: each["relative"] or 0.0)
    costly = [each for each in dearest if each["costs"]]
    lines = []
    if costly and best:
        rows = [
            [
                restriction(each),
                each["instead"] or "nothing",
                ("" if each["proved"] else "at least ") + percent(-each["relative"]),
                difference(best, each["decided"]),
                because(each),
            ]
            for each in costly
        ]
        lines.append(table(("without", "instead", "faster by", "new plan", "because"), rows, (2,), screen))
    elif costly:
        lines.append(table(FREEING, freeing_rows(costly), (3,), screen))
    notes = []
    if any(not each["proved"] for each in costly):
        notes.append(f"At least: {UNPROVED}." if best else f"{UNPROVED.capitalize()}.")
    free = [
        restriction(each) + ("" if each["proved"] else f" ({UNPROVED})")
        for each in dearest
        if each["plan"] is not None and not each["costs"]
    ]
    if free:
        notes.append(f"No cost: {'; '.join(free)}")
    none = [each for each in dearest if each["plan"] is None]
    if none and best:
        notes += [f"No plan without {entries}: {why}" for why, entries in by_refusal(none, restriction)]
    elif none:
        notes.append(f"Lifting one of these alone gives no plan: {'; '.join(map(restriction, none))}")
    return _with_notes(lines, notes, screen)


def _pools(changes: Sequence[Answer], best: Decided, screen: Screen) -> list[str]:
    """Describe the best plan without each pool, and with more of it."""
    found = [each for each in changes if each["plan"] is not None]
    rows = [
        [
            each["pool"],
            each["change"],
            ""
            if each["batch_time"] is None
            else format_seconds(each["batch_time"]) + ("" if each["proved"] else _MARK),
            "" if each["relative"] is None else f"{100 * each['relative']:+.1f} %",
            difference(best, each["decided"]) if best else whole(each["decided"]),
        ]
        for each in found
    ]
    lines = [table(("pool", "change", "step time", "difference", "new plan"), rows, (2, 3), screen)] if rows else []
    notes = [f"{_MARK} {UNPROVED}"] if any(not each["proved"] for each in found) else []
    notes += [
        f"Pool {each['pool']}, {each['change']}: no plan. {each['refusal']}" for each in changes if each["plan"] is None
    ]
    return _with_notes(lines, notes, screen)


def _alternatives(alternatives: Sequence[Answer], decided: Decided, least: float, screen: Screen) -> list[str]:
    rows = alternative_rows(alternatives, decided)
    lines = [table(("instead", "step time", "with", "because"), rows, (1,), screen)] if rows else []
    notes = alternative_notes(alternatives, least)
    for decision, why, searched in without_alternative(alternatives):
        notes.append(f"No plan without {decision}: {why}" if searched else f"No alternative to {decision}: {why}")
    return _with_notes(lines, notes, screen)


def _breakpoints(breakpoints: Sequence[Answer], best: Decided, screen: Screen) -> list[str]:
    """Describe the values of a number beyond which another plan is the best, or none fits; no `best`: no plan fits."""
    changing = [each for each in breakpoints if each["changed_at"] is not None]
    header = ("parameter", "now", "with", "factor", "new plan", "step time")
    lines = [table(header, [_row(each, best) for each in changing], (1, 2, 3, 5), screen)] if changing else []
    notes = []
    if any(not each["proved"] for each in changing):
        notes.append(f"{_MARK} {UNPROVED}")
    if not all(each["precise"] for each in changing):
        notes.append("Two values bracket the change: the search between them was stopped.")
    if best and any(map(_is_adjusted, breakpoints)):
        notes.append("Adjusted: only layers, recomputation or ZeRO of some stages change.")
    stays: dict[str, list[str]] = {}
    for each in breakpoints:
        if each["changed_at"] is None:
            way = "down" if each["direction"] == "less" else "up"
            proof = "" if each["proved"] else f" ({UNPROVED})"
            anew = ", adjusted" if best and _is_adjusted(each) else ""
            end = f"{way} to {_amount(each['same_at'], each['unit'])} ({_times(each, 'same_at')}{anew}){proof}"
            stays.setdefault(each["parameter"], []).append(end)
    if stays:
        unchanged = "; ".join(f"{name} {' and '.join(ends)}" for name, ends in stays.items())
        notes.append(f"{'No change' if best else 'Still no plan'}: {unchanged}")
    return _with_notes(lines, notes, screen)


def _row(each: Answer, best: Decided) -> list[str]:
    outcome = each["outcome"]
    if outcome["plan"] is None:
        then = "no plan fits"
    elif not best:
        then = whole(outcome["decided"])
    else:
        kept = "" if each["kept"] is not None else "; today's plan no longer fits"
        then = difference(best, outcome["decided"]) + kept
    return [
        each["parameter"],
        _amount(each["value"], each["unit"]),
        _bound(each, feasible_from_there=not best) + (", adjusted" if best and _is_adjusted(each) else ""),
        _times(each, "changed_at" if not best or each["unit"] == "samples" else "same_at"),
        then + ("" if each["proved"] else _MARK),
        "" if outcome["batch_time"] is None else format_seconds(outcome["batch_time"]),
    ]


def _is_adjusted(each: Answer) -> bool:
    """Return whether the plan stays the best up to there only if layers or modes of some stages change."""
    return each["same_kept"] is None or each["same_kept"] > HARDLY_FASTER


def _bound(each: Answer, *, feasible_from_there: bool) -> str:
    """Describe a value that changes the best plan; `feasible_from_there`: there is no plan before it."""
    same, changed = (_amount(each[side], each["unit"]) for side in ("same_at", "changed_at"))
    if each["unit"] == "samples":
        return changed
    if not each["precise"]:
        return f"{same} to {changed}"
    if feasible_from_there:
        return f">= {changed}" if each["direction"] == "more" else f"<= {changed}"
    return f"{'<' if each['direction'] == 'less' else '>'} {same}"


def _times(each: Answer, side: str) -> str:
    return f"{each[side] / each['value']:.3g}x"


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return format_bytes(value)
    size, name = _UNITS.get(unit, (1.0, unit))
    return f"{value:,.0f} samples" if unit == "samples" else f"{three_digits(value / size)} {name}"


Finding = Mapping[str, Any]  # A finding of `nest_whatif.binding` on one resource.

Row = tuple[str, str]

NOTICEABLE = 5e-4  # Least share of the step time shown: less would read 0.0%.


def binding_text(binding: list[Finding], screen: Screen) -> str:
    """Describe the findings of `nest_whatif.binding`, the most important first."""
    rows = [row for each in binding for row in _ROWS[each["name"]](each)]
    tones = {0: Tone.BAD} if any(each["name"] == "memory" and each["free"] < 0 for each in binding) else {}
    return figures(rows, screen, indent=2, tones=tones)


def _memory(each: Finding) -> Iterator[Row]:
    others = len(each["stages"]) - 1
    room = "to spare" if each["free"] >= 0 else "too much"
    many = f"; {counted(others, 'other stage')} within 1 % of it" if others else ""
    margin = each["upper"] > each["expected"]
    upper = f", upper estimate {format_bytes(each['upper'])}," if margin else ""
    needs = f"{format_bytes(each['expected'])}{upper} of {format_bytes(each['capacity'])}"
    likely = "" if each["likely"] is None else f"; {likelihood(each['likely'])} likely to fit"
    free = f"{format_bytes(abs(each['free']))} {room}"
    yield "memory", f"stage {each['stage']}: estimate {needs}; {free}{many}{likely}"
    parts = sorted(each["parts"].items(), key=lambda part: -part[1])
    sizes = ", ".join(f"{MEMORY_NAMES.get(name, name)} {format_bytes(size)}" for name, size in parts)
    recompute = recompute_words(each["recompute"])
    in_flight = f"{counted(each['in_flight'], 'micro-batch', 'es')} in flight, recomputation {recompute}"
    if parts:
        yield "", f"parts of the estimate: {sizes}"
        yield "", in_flight


def _recomputation(each: Finding) -> Iterator[Row]:
    of = "chunk" if each["chunks"] > 1 else "stage"
    told = [f"one block {way} per {of}: {_changed_by(each[way])}" for way in ("more", "fewer") if way in each]
    yield "recomputation", "; ".join([_modes(each), *told])


def _changed_by(step: Mapping[str, Any]) -> str:
    slower, memory = step["slower_by"], step["memory"]
    time = f"{percent(abs(slower))} {'slower' if slower > 0 else 'faster'}" if slower else "as fast"
    room = f"{format_bytes(abs(memory))} {'more' if memory > 0 else 'less'}"
    return f"{_modes(step)}, {time}, {room}{'' if step['fits'] else ', which does not fit'}"


def _modes(step: Mapping[str, Any]) -> str:
    return " and ".join(map(recompute_words, step["recompute"]))


def _slowest(each: Finding) -> Iterator[Row]:
    text = f"stage {each['stage']} ({ranges(each['layers'])}), {format_seconds(each['time'])} per micro-batch"
    if each["uneven_share"] >= NOTICEABLE:
        text += f"; equal stages would save at most {percent(each['uneven_share'])} of the step time"
    yield "slowest stage", text
    shares = sorted(each["shares"].items(), key=lambda share: -share[1])
    yield (
        "step time",
        ", ".join(f"{SHARE_NAMES[name]} {percent(share)}" for name, share in shares if share >= NOTICEABLE),
    )


def _idle(each: Finding) -> Iterator[Row]:
    chunks = f" of {each['chunks']} chunks" if (each["chunks"] or 1) > 1 else ""
    yield (
        "idle share",
        f"{percent(each['share'])} of the step time, mean of {counted(each['stages'], 'stage')}, "
        f"{counted(each['micro_batches'], 'micro-batch', 'es')}, schedule {each['schedule']}{chunks}",
    )


def _boundaries(each: Finding) -> Iterator[Row]:
    level = f" over {each['level']}" if each["level"] is not None else ""
    yield (
        "pipeline P2P",
        f"{percent(each['share'])} of the step time; at most {format_bytes(each['bytes'])} per device and "
        f"micro-batch{level}",
    )


def _exchange(each: Finding) -> Iterator[Row]:
    sharding = each["sharding_share"]
    beside = f", and {SHARE_NAMES['sharding']} {percent(sharding)}" if sharding >= NOTICEABLE else ""
    zero = decision_text("zero", each["zero"])
    yield (
        "data parallelism",
        f"{counted(each['replicas'], 'replica')}, {zero}: {SHARE_NAMES['sync']} on stage {each['stage']} "
        f"{format_seconds(each['time'])} per step ({percent(each['share'])}){beside}",
    )


def _batch(each: Finding) -> Iterator[Row]:
    copies = each["samples"] // each["micro_batch"] if each["micro_batch"] else 1
    product = [
        counted(each["replicas"], "replica"),
        counted(each["micro_batches"], "micro-batch", "es"),
        *([f"{copies} copies"] if copies > 1 else []),
        counted(each["micro_batch"], "sample"),
    ]
    padding = f", {each['padding']} of padding" if each["padding"] > 0 else ""
    yield "batch", f"{counted(each['global_batch'], 'sample')} = {' x '.join(product)}{padding}"


def _devices(each: Finding) -> Iterator[Row]:
    idle = each["of"] - each["used"]
    yield "devices", f"{each['used']} of {each['of']} used" + (f", {idle} idle" if idle else "")


_ROWS = {
    "memory": _memory,
    "recomputation": _recomputation,
    "slowest stage": _slowest,
    "idle": _idle,
    "boundaries": _boundaries,
    "data parallelism": _exchange,
    "batch": _batch,
    "devices": _devices,
}
