"""Every stage of a plan with its decisions and figures, and the problem it solves."""

import json

from nest.report.decisions import ranges
from nest.report.html.records import Cell, Fold, Listing, Section, Subject, Table
from nest.spec import PlanDocument

LONGEST_PROBLEM = 8000
"""Characters of the problem that are shown; of longer ones, sections that are longer than their share are left out."""


def stage_table(subject: Subject) -> Section:
    """A row for each stage."""
    plan = subject.plan
    mixed = len({stage.candidate for stage in plan.stages}) > 1
    levels = tuple(plan.summary.get("levels", ()))
    header = [
        "stage", "layers", *(["candidate"] if mixed else []), "recompute", "ZeRO", "time per micro-batch",
        "once per batch", "memory", "taken to need", "in flight", "link behind", "sent per micro-batch",
    ]  # fmt: skip
    rows = []
    for index, (stage, priced) in enumerate(zip(plan.stages, subject.priced.stages, strict=True)):
        upper = priced.upper_memory if stage.upper_memory is None else stage.upper_memory
        sent = priced.bytes_out if stage.bytes_out is None else stage.bytes_out
        rows.append(
            (
                Cell(str(index + 1)),
                Cell(ranges(stage.layers)),
                *((Cell(stage.candidate),) if mixed else ()),
                Cell(stage.recompute),
                Cell(str(stage.zero), float(stage.zero)),
                Cell.seconds(stage.time),
                Cell.seconds(stage.sync_time),
                Cell.size(stage.memory),
                Cell.size(upper),
                Cell(f"{stage.in_flight:.4g}", float(stage.in_flight)),
                Cell(levels[stage.level_out] if stage.level_out >= 0 else "–"),
                Cell.size(sent),
            )
        )
    words = (0, 1, 2, 3, len(header) - 2) if mixed else (0, 1, 2, len(header) - 2)
    table = Table("Decisions and figures of every stage", tuple(header), tuple(rows), words)
    return Section("stages", "Stages", tables=(table,))


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
            "The plan file holds its whole problem, so it is all these commands need."
            + (" Figures of this page in full are in the `data-value` attributes of its tables." if feasible else ""),
        ),
        listings=(Listing("Commands", commands),),
        tables=(Table("Distributions that took part", ("distribution", "version"), versions, (0, 1)),)
        if versions
        else (),
        more=(Fold("problem.json", (Listing("problem.json", _problem(plan)),)),),
        more_title="The problem as read",
    )


def _problem(plan: PlanDocument) -> str:
    """The problem as JSON; parts too long to be read by people are replaced by how long they are."""
    problem = dict(plan.problem)
    share = LONGEST_PROBLEM // max(len(problem), 1)
    if len(_json(problem)) > LONGEST_PROBLEM:
        problem = {
            key: value if len(_json(value)) <= share else f"{len(_json(value)):,} characters, in the plan file"
            for key, value in problem.items()
        }
    return _json(problem) + "\n"


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
