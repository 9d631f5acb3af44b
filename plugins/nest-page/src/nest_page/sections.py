"""Sections of words, tables and listings: what the plan beats, how to run it, its stages, how to reproduce it."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nest.deployment.deployment import chunks_of_stages
from nest.errors import InputError
from nest.instance import recompute_words
from nest.public.planning import reasons
from nest.public.text import (
    COPIES,
    FREEING,
    ON_NETWORK,
    Answer,
    Decided,
    alternative_notes,
    alternative_rows,
    apart,
    because,
    chunk_ranges,
    difference,
    freeing_rows,
    is_mixed,
    level_name,
    other_plan_texts,
    runner_up_text,
    slower_by,
    without_alternative,
)
from nest.spec import PlanDocument
from nest.units import format_bytes, listed
from nest_page.records import Cell, Fold, Listing, Section, Subject, Table


def why_section(plan: PlanDocument) -> tuple[Section, ...]:
    """The plan's own remarks on other plans; empty if there are none."""
    notes = _stated(plan)
    return (Section("why", "Why this plan", paragraphs=notes),) if notes else ()


def _stated(plan: PlanDocument) -> tuple[str, ...]:
    """The plan's own remarks on other plans, and on a network that is no hierarchy."""
    notes = []
    if plan.placement is not None:
        notes.append(ON_NETWORK)
    if plan.runner_up is not None and "reason" in plan.runner_up:
        notes.append(runner_up_text(plan.runner_up))
    return (*notes, *(f"The {name} plan: {text}." for name, text in other_plan_texts(plan)))


def alternatives_section(
    plan: PlanDocument, decided: Decided, alternatives: Sequence[Answer], usual: Answer | None
) -> Section:
    """The best plan without each choice, and the plan of the rules of thumb, below the plan's own list of others.

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
    header = ("instead", "step time", "with", "because")
    table = Table("Best alternatives", header, tuple(rows), (0, 2, 3))
    always = tuple((Cell(decision), Cell(reason)) for decision, reason, _ in without_alternative(alternatives))
    fold = Fold("why", tables=(Table("Decisions without an alternative", ("decision", "why"), always, (0, 1)),))
    return Section(
        "why",
        "Why this plan",
        paragraphs=tuple(notes),
        tables=(table,) if rows else (),
        more=(fold,) if always else (),
        more_title=f"No alternative: {', '.join((decision.text for decision, _ in always))}",
    )


def freeing_section(prices: Sequence[Answer], enough: Sequence[tuple[Cell, ...]], tried: str) -> Section:
    """Changes that would let a plan fit where none does.

    Args:
        prices: what comes of each restriction left out.
        enough: rows of numbers of the problem that let a plan fit if there is more of them.
        tried: how much more of them was tried.
    """
    rows = [*(tuple(map(Cell, row)) for row in freeing_rows(prices)), *enough]
    if not rows:
        return Section("freeing", "What would fit", paragraphs=(f"No single change is enough, nor {tried}.",))
    table = Table("Single changes that make a plan fit", FREEING, tuple(rows), (0, 1, 2))
    return Section("freeing", "What would fit", tables=(table,))


PREFERRED = ("megatron", "torchtitan", "deepspeed")
"""Frameworks whose files come first where they can run the plan; others follow by name."""

LAUNCHERS = ("torchrun", "slurm")
"""Exporters whose scripts start the processes."""

LONGEST = 20_000
"""Characters of a file that is shown; of longer ones only the command that writes them."""


Files = tuple[Mapping[str, str], Sequence[str]]
"""Contents by file name, and what to think of before they are used."""

Export = Callable[[tuple[str, ...]], Files]
"""Gives the files of exporters for the plan; raises InputError where one refuses it."""


def launch(subject: Subject, export: Export) -> Section:
    """The first framework's flags; folded away its other files, launchers, other frameworks; reasons of the rest."""
    plan, known = subject.plan, subject.known
    against = dict(reasons(plan, known))
    made: dict[str, Files] = {}
    for name in sorted(against, key=_rank):
        if against[name]:
            continue
        try:
            made[name] = export((name,))
        except InputError as error:
            against[name] = (str(error).rstrip("."),)
    first = next(iter(made), None)
    listings = [] if first is None else _files(first, made[first][0])
    more = [] if first is None else [_fold(first, listings[1:])]
    for name in LAUNCHERS:
        if name in known.exporters():
            more.append(_fold(name, _launcher(export, name, first, made[first][0] if first is not None else {})))
    more += [_fold(name, _files(name, made[name][0])) for name in made if name != first]
    return Section(
        "launch",
        "Launch",
        paragraphs=_paragraphs(first, made, plan.fits),
        listings=tuple(listings[:1]),
        more=(*(fold for fold in more if fold.listings), *_refusals(against)),
        more_title="Other files, launchers and frameworks",
    )


def _fold(exporter: str, listings: Sequence[Listing]) -> Fold:
    """An exporter's files under their names."""
    names = [each.name.removeprefix(f"{exporter}: ") for each in listings]
    return Fold(exporter if names == [exporter] else f"{exporter}: {', '.join(names)}", tuple(listings))


def _rank(name: str) -> tuple[int, str]:
    return (PREFERRED.index(name) if name in PREFERRED else len(PREFERRED)), name


def _paragraphs(first: str | None, made: Mapping[str, Files], fits: bool) -> tuple[str, ...]:
    if first is None:
        return (
            "No framework can run this plan. `nest export PLAN --to NAME --nearest` exports the nearest plan; "
            "`nest solve --target NAME` plans for a framework.",
        )
    return (
        *([f"Exporters: {listed(tuple(made))}."] if fits else []),
        f"Files of {first} and of launchers, as `nest export PLAN --to {first} --to torchrun -o DIR` writes them.",
        *dict.fromkeys(warning[0].upper() + warning[1:] for warning in made[first][1]),
    )


def _files(exporter: str, files: Mapping[str, str], framework: str | None = None) -> list[Listing]:
    """A listing for each file, whole or not at all; a launcher's are for the ranks of a framework."""
    to = "".join(f" --to {name}" for name in (framework, exporter) if name is not None)
    listings = []
    for name, text in files.items():
        title = f"{exporter}: {name}"
        if len(text) <= LONGEST:
            listings.append(Listing(title, text))
        else:
            size = f"{text.count(chr(10)):,} lines, {format_bytes(len(text.encode()))}"
            listings.append(Listing(title, "", f"{size}, too long to be shown; `nest export PLAN{to}` writes it."))
    return listings


def _launcher(export: Export, name: str, framework: str | None, others: Mapping[str, str]) -> list[Listing]:
    """Its files for the ranks of the framework, whose own are `others`; of a launcher that refuses, the reason."""
    to = (name,) if framework is None else (framework, name)
    try:
        files, _ = export(to)
    except InputError as error:
        return [Listing(name, "", str(error))]
    return _files(name, {file: text for file, text in files.items() if file not in others}, framework)


def _refusals(against: Mapping[str, tuple[str, ...]]) -> tuple[Fold, ...]:
    refused = sorted((name for name, beyond in against.items() if beyond), key=_rank)
    if not refused:
        return ()
    rows = tuple((Cell(name), Cell("; ".join(against[name]))) for name in refused)
    table = Table("Frameworks that cannot run this plan", ("framework", "why not"), rows, (0, 1))
    return (Fold(f"cannot run this plan: {', '.join(refused)}", tables=(table,)),)


LONGEST_PROBLEM = 8000
"""Characters of the problem that are shown; of longer ones, sections that are longer than their share are left out."""


def stage_table(subject: Subject) -> Section:
    """A row for each stage."""
    plan = subject.plan
    mixed = is_mixed(plan)
    pooled = subject.instance.pools is not None
    header = [
        "stage", "layers", *(["pool"] if pooled else []), *(["candidate"] if mixed else []), "recompute", "ZeRO",
        "time per micro-batch", "once per batch", "memory", "upper estimate", "in flight", "link behind",
        "sent per micro-batch",
    ]  # fmt: skip
    rows = []
    every = zip(plan.stages, subject.priced.stages, chunks_of_stages(plan), strict=True)
    for index, (stage, priced, chunks) in enumerate(every):
        upper = priced.upper_memory if stage.upper_memory is None else stage.upper_memory
        sent = priced.bytes_out if stage.bytes_out is None else stage.bytes_out
        rows.append(
            (
                Cell(str(index + 1)),
                Cell(chunk_ranges([chunks])),
                *((Cell(stage.pool or ""),) if pooled else ()),
                *((Cell(stage.candidate),) if mixed else ()),
                Cell(recompute_words(stage.recompute_name)),
                Cell(str(stage.zero), float(stage.zero)),
                Cell.seconds(stage.time),
                Cell.seconds(stage.sync_time),
                Cell.size(stage.memory),
                Cell.size(upper),
                Cell(f"{stage.in_flight:.4g}", float(stage.in_flight)),
                Cell(level_name(plan.summary, stage.pool, stage.level_out) if stage.level_out >= 0 else "–"),
                Cell.size(sent),
            )
        )
    words = (*range(3 + mixed + pooled), len(header) - 2)
    table = Table("Decisions and figures of every stage", tuple(header), tuple(rows), words)
    notes = (COPIES,) if plan.summary.get("copies", 1) > 1 else ()
    return Section("stages", "Stages", paragraphs=notes, tables=(table,))


def reproduce(plan: PlanDocument) -> Section:
    """The problem as it was read, and how to get the same figures again."""
    versions = tuple((Cell(name), Cell(version or "not recorded")) for name, version in plan.plugins.items())
    feasible = plan.status != "infeasible"
    commands = (
        "nest check PLAN                    # every figure of the plan, worked out anew\n"
        "nest verify PLAN                   # a second solver tries to find a faster plan\n"
        if feasible
        else "nest explain PLAN                  # what stands in the way, and what would let a plan fit\n"
    ) + "nest report PLAN -o report.html    # this page, byte for byte\n"
    return Section(
        "reproduce",
        "Problem, and how to reproduce",
        paragraphs=(
            "These commands need only the plan file."
            + (" Figures of this page in full are in the `data-value` attributes of its tables." if feasible else ""),
        ),
        listings=(Listing("Commands", commands),),
        tables=(Table("Distributions that took part", ("distribution", "version"), versions, (0, 1)),)
        if versions
        else (),
        more=(Fold("problem.json", (Listing("problem.json", problem_text(plan.problem)),)),),
        more_title="The problem as read",
    )


def problem_text(whole: Mapping[str, Any]) -> str:
    """The problem as JSON; parts too long to be read by people are replaced by how long they are."""
    problem = dict(whole)
    share = LONGEST_PROBLEM // max(len(problem), 1)
    if len(_json(problem)) > LONGEST_PROBLEM:
        problem = {
            key: value if len(_json(value)) <= share else f"{len(_json(value)):,} characters, in the plan file"
            for key, value in problem.items()
        }
    return _json(problem) + "\n"


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
