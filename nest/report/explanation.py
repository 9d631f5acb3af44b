"""An explanation of a plan in figures, tables and a few sentences."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nest.report.binding import binding_text
from nest.report.decisions import Decided, difference, differs, in_usual_order, told, values_of, whole
from nest.report.evaluation import SHARE_NAMES
from nest.report.flips import UNPROVED, flips_text, with_notes
from nest.report.paragraph import opening, paragraph
from nest.report.runner_up import causes, less_bandwidth
from nest.report.screen import WIDE, Screen, Tone
from nest.report.table import table
from nest.tolerances import AGREEMENT
from nest.units import format_seconds

Told = Mapping[str, Any]

UNSHOWN = 5e-5
"""Differences of batch times below this are 0.00% when they are shown."""


STEPS = ("plan", "binding", "best", "constraints", "alternatives", "flips", "loses")
"""In what steps an explanation is found and told: what the plan is, what binds, the best plan, and so on."""


def explanation_text(found: Told, screen: Screen = WIDE) -> str:
    """An explanation (`nest.whatif.explain.Explanation.to_dict`) in sections, fitted to a screen."""
    return "\n\n".join(section for step in STEPS if (section := explanation_section(found, step, screen)))


def explanation_section(found: Told, step: str, screen: Screen = WIDE) -> str:
    """What a step adds to an explanation, fitted to a screen; empty where it has nothing to say.

    Args:
        found: `nest.whatif.explain.Explanation.to_dict`, of which only what the step has found is read.
        step: of `STEPS`.
        screen: what the text is laid out for.
    """
    if step == "plan":
        return _headline(found, screen)
    if step == "best":
        return _caveat(found, screen)
    if step == "binding" and found["binding"]:
        return _section("What binds", [binding_text(found["binding"], screen)], screen)
    if step == "constraints" and step in found["parts"]:
        lines = _prices(found["constraints"], found["best_decided"], screen)
        return _section("What restrictions cost", lines, screen)
    if step == "alternatives" and found["alternatives"]:
        lines = _alternatives(found["alternatives"], found["decided"], found["apart"], screen)
        return _section("The best plan that decides one thing otherwise", lines, screen)
    if step == "flips" and step in found["parts"]:
        lines = flips_text(found["flips"], found["best_decided"], screen)
        return _section("What would change the answer", lines, screen)
    return _loses(found["loses"], screen) if step == "loses" else ""


def _headline(found: Told, screen: Screen) -> str:
    if found["status"] == "infeasible":
        return opening("No feasible plan.", Tone.BAD, f" {found['diagnosis']}", screen)
    proof, tone = (
        ("Optimal plan:", Tone.GOOD) if found["status"] == "optimal" else ("Best plan found in time:", Tone.FAIR)
    )
    if not found["searched"]:
        proof, tone = "Plan as decided:", Tone.HEADING
    return opening(proof, tone, f" {whole(found['decided'])}; {format_seconds(found['batch_time'])} a batch", screen)


def _loses(loses: Told | None, screen: Screen) -> str:
    """What the plan does not stand."""
    if loses is None:
        return ""
    rival = "another plan" if loses["to"] is None else f"its runner-up ({loses['to']})"
    return paragraph(f"The plan loses to {rival} if {less_bandwidth(loses['bandwidths'], loses['less'])}.", screen)


def _caveat(found: Told, screen: Screen) -> str:
    """What the plan asked about is not."""
    best = found["best_batch_time"]
    if found["status"] == "infeasible":
        return ""
    if best is None:
        return paragraph(f"This plan was priced, not searched: its problem has none. {found['best_diagnosis']}", screen)
    if best < found["batch_time"] * (1 - AGREEMENT):
        then = difference(found["decided"], found["best_decided"])
        return paragraph(
            f"The best plan of this problem takes {format_seconds(best)}; this one is "
            f"{found['batch_time'] / best - 1:.2%} slower. The best has {then}. Restrictions and what would change the "
            "answer are told of the best plan.",
            screen,
        )
    return ""


def _section(title: str, lines: Sequence[str], screen: Screen) -> str:
    heading = [screen.paint(line, Tone.HEADING) for line in paragraph(title, screen).split("\n")]
    return "\n".join([*heading, *(lines or ["Nothing that was asked for."])])


def _prices(prices: Sequence[Told], best: Decided, screen: Screen) -> list[str]:
    """What each restriction costs, the dearest first; where there is no plan, which one makes it so."""
    dearest = sorted(prices, key=lambda each: each["relative"] or 0.0)
    costly = [each for each in dearest if each["costs"]]
    lines = [] if not costly else [_gains(costly, best, screen) if best else _found(costly, screen)]
    notes = []
    if any(not each["proved"] for each in costly):
        notes.append(f"At least: {UNPROVED}." if best else f"{UNPROVED.capitalize()}.")
    free = [
        _entry(each) + ("" if each["proved"] else f" ({UNPROVED})")
        for each in dearest
        if each["plan"] is not None and not each["costs"]
    ]
    if free:
        notes.append(f"No cost: {'; '.join(free)}")
    none = [each for each in dearest if each["plan"] is None]
    if none and best:
        notes += [f"Without {entries}, no plan was found. {why}" for why, entries in _by_refusal(none, _entry)]
    elif none:
        notes.append(f"Without any one of these there is no plan either: {'; '.join(map(_entry, none))}")
    return with_notes(lines, notes, screen)


def _gains(costly: Sequence[Told], best: Decided, screen: Screen) -> str:
    """How much faster the best plan without each restriction is."""
    rows = [
        [
            _entry(each),
            each["instead"] or "nothing",
            _share(-each["relative"], "" if each["proved"] else "at least "),
            difference(best, each["decided"]),
            because(each),
        ]
        for each in costly
    ]
    return table(("without", "instead", "faster by", "the plan then", "because"), rows, (2,), screen)


def _found(costly: Sequence[Told], screen: Screen) -> str:
    """The plan that there is without each restriction, where there is none with all of them."""
    return table(FREEING, freeing_rows(costly), (3,), screen)


FREEING = ("without", "instead", "there is a plan", "a batch then")
"""What `freeing_rows` have."""


def freeing_rows(prices: Sequence[Told]) -> list[tuple[str, str, str, str]]:
    """Restrictions without which there is a plan, where with all of them there is none."""
    return [
        (_entry(each), each["instead"] or "nothing", whole(each["decided"]), format_seconds(each["batch_time"]))
        for each in prices
        if each["plan"] is not None
    ]


def _entry(each: Told) -> str:
    if each["place"].startswith("constraints["):
        return f"`{each['written']}`"
    return f"{each['place']} {each['written']}"


def alternative_rows(alternatives: Sequence[Told], asked: Decided) -> list[tuple[str, str, str, str]]:
    """The best plans that decide one thing otherwise, the closest first; a plan that answers several questions once.

    Args:
        alternatives: as `nest.whatif.alternatives.Alternative.to_dict` has them.
        asked: what the plan asked about decides.

    Returns:
        What is decided instead, how much slower that is, what else is decided then, and why it is slower.
    """
    plans: dict[str, list[Told]] = {}
    for each in sorted((each for each in alternatives if each["plan"]), key=lambda each: each["relative"]):
        plans.setdefault(f"{each['decided']} {each['batch_time']}", []).append(each)
    rows = []
    for same in plans.values():
        first, names = same[0], [each["decision"] for each in same]
        independent = [name for name in names if differs(name, asked, first["decided"])] or names
        rows.append(
            (
                ", ".join(told(name, values_of(first["decided"], name)) for name in in_usual_order(independent)),
                slower_by(first, proved=all(each["proved"] for each in same)),
                difference(asked, first["decided"], independent) or "-",
                because(first),
            )
        )
    return rows


def slower_by(each: Told, *, proved: bool = True) -> str:
    """By how much another plan is slower; it may be less where that is not `proved`."""
    return "as fast" if each["reason"] is None else _share(each["relative"], "" if proved else "at most ")


def alternative_notes(alternatives: Sequence[Told], least: float) -> list[str]:
    """What rows of alternatives do not say; those slower by less than `least` cannot be told from the plan."""
    notes = []
    if any(not each["proved"] for each in alternatives if each["plan"]):
        notes.append(f"At most: {UNPROVED}.")
    if any(each["reason"] is not None and each["relative"] < least for each in alternatives if each["plan"]):
        notes.append(f"Less than {least:.0%} slower cannot be told from this plan by prediction: measure both.")
    return notes


def kept_always(alternatives: Sequence[Told]) -> list[tuple[str, str, bool]]:
    """What no plan decides otherwise, why, and whether that was found by a search."""
    none = [each for each in alternatives if each["plan"] is None and each["asked"]]
    unasked = [each for each in alternatives if not each["asked"]]
    return [
        (kept, why, found) for found, some in ((True, none), (False, unasked)) for why, kept in _by_refusal(some, _kept)
    ]


def _alternatives(alternatives: Sequence[Told], asked: Decided, least: float, screen: Screen) -> list[str]:
    rows = alternative_rows(alternatives, asked)
    lines = [table(("instead", "slower by", "with", "because"), rows, (1,), screen)] if rows else []
    notes = alternative_notes(alternatives, least)
    for kept, why, found in kept_always(alternatives):
        notes.append(f"No plan without {kept}. {why}" if found else f"Not to be had otherwise: {kept} ({why})")
    return with_notes(lines, notes, screen)


def _kept(each: Told) -> str:
    return told(each["decision"], [each["value"]])


def _by_refusal(refused: Sequence[Told], name: Callable[[Told], str]) -> list[tuple[str, str]]:
    """Each reason why there is no plan, with all that it is the reason for."""
    found: dict[str, list[str]] = {}
    for each in refused:
        found.setdefault(each["refusal"], []).append(name(each))
    return [(why, " or ".join(names)) for why, names in found.items()]


def _share(relative: float, begin: str) -> str:
    """A difference of batch times; `begin` says that it is a bound."""
    if abs(relative) < UNSHOWN:
        return "less than 0.01%" if relative > 0 else "faster, by less than 0.01%"
    return f"{begin}{relative:.2%}"


def because(each: Told) -> str:
    """The parts of the batch time that make the difference, as shares of it."""
    if each["reason"] is None:
        return ""
    found = causes(each["grown"], slower=each["relative"] > 0)
    return ", ".join(f"{SHARE_NAMES[name]} {share:.2%} {word}" for name, share, word in found)
