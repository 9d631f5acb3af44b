"""Why a plan is the one: what it beats, and what would have to change for any to be there."""

from collections.abc import Sequence

from nest.report.alternatives import (
    FREEING,
    Answer,
    alternative_notes,
    alternative_rows,
    because,
    freeing_rows,
    slower_by,
    without_alternative,
)
from nest.report.decisions import Decided, difference
from nest.report.html.records import Cell, Fold, Section, Table
from nest.report.runner_up import apart, other_risk_text, runner_up_text
from nest.spec import PlanDocument
from nest.units import format_seconds


def why_section(plan: PlanDocument) -> tuple[Section, ...]:
    """What the plan itself says of others; none: nothing."""
    notes = _stated(plan)
    return (Section("why", "Why this plan", paragraphs=notes),) if notes else ()


def _stated(plan: PlanDocument) -> tuple[str, ...]:
    """What the plan itself says of others, and of itself on a network that is no hierarchy."""
    notes = []
    if plan.placement is not None:
        proved = "proved the best for this plan" if plan.placement.status == "optimal" else "the best found"
        notes.append(
            f"The network is no hierarchy: levels come near it. On the network itself the batch takes "
            f"{format_seconds(plan.placement.batch_time)}, with the placement below, {proved}."
        )
    if plan.runner_up is not None and "reason" in plan.runner_up:
        notes.append(runner_up_text(plan.runner_up))
    return (*notes, *map(other_risk_text, plan.other_risks))


def alternatives_section(
    plan: PlanDocument, decided: Decided, alternatives: Sequence[Answer], usual: Answer | None
) -> Section:
    """The best plan without each choice and that of the rules of thumb, below what the plan itself says of others.

    Args:
        plan: beats them.
        decided: what it decides.
        alternatives: the best plans that decide one thing otherwise.
        usual: the plan of the rules of thumb; None: nobody asked for it.
    """
    rows = [tuple(map(Cell, row)) for row in alternative_rows(alternatives, decided)]
    notes = [*_stated(plan), *alternative_notes(alternatives, apart(plan))]
    if usual is not None and usual["plan"] is None:
        notes.append("Rules of thumb (`nest compare --planner manual`) find no plan that fits.")
    elif usual is not None:
        then = difference(decided, usual["decided"])
        rows.append(tuple(map(Cell, ("rules of thumb", slower_by(usual), then, because(usual)))))
    header = ("instead", "slower by", "with", "because")
    table = Table("The best plan that decides one thing otherwise", header, tuple(rows), (0, 2, 3))
    always = tuple((Cell(decision), Cell(reason)) for decision, reason, _ in without_alternative(alternatives))
    fold = Fold("why", tables=(Table("What no plan decides otherwise", ("decision", "why"), always, (0, 1)),))
    return Section(
        "why",
        "Why this plan",
        paragraphs=tuple(notes),
        tables=(table,) if rows else (),
        more=(fold,) if always else (),
        more_title=f"No plan decides otherwise: {', '.join(decision.text for decision, _ in always)}",
    )


def freeing_section(prices: Sequence[Answer], enough: Sequence[tuple[Cell, ...]], tried: str) -> Section:
    """What would let a plan fit where none does.

    Args:
        prices: what comes of each restriction left out.
        enough: rows of numbers of the problem that let a plan fit if there is more of them.
        tried: how much more of them was tried.
    """
    rows = [*(tuple(map(Cell, row)) for row in freeing_rows(prices)), *enough]
    if not rows:
        return Section("freeing", "What would fit", paragraphs=(f"No single change is enough, nor {tried}.",))
    table = Table("With one thing changed, the best plan then", FREEING, tuple(rows), (0, 1, 2))
    return Section("freeing", "What would fit", tables=(table,))
