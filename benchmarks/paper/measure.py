"""Planning a cell with every planner."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import prod
from typing import Any

from attrs import asdict, evolve, field, frozen

import nest
from benchmarks.paper.cells import BOUND, Cell
from nest import api
from nest.formulate.target import runs_on
from nest.hooks.registry import registry
from nest.spec import PlanDocument

EVALUATIONS = 500
"""Plans that each random search may price in each cell."""

OURS = "nest"
EQUAL = 1e-6
"""Shares of the step time below which two plans are called equally fast."""


@frozen
class Row:
    """One planner's plan of a cell.

    Attributes:
        planner: its name; `nest` is ours.
        throughput: samples per second; None: it has no plan that fits.
        decisions: in short, or why there are none.
        missing: bytes its fullest stage needs beyond those of a device.
        memory: bytes of its fullest stage; None where there is no plan.
        devices: it uses.
        seconds: wall-clock time of its search.
        replayed: step time of its replay over what it is priced at; None: it was not replayed.
        launch: what `nest export` writes for each framework that runs it as it is, contents by framework and file
            name; None: nobody looked.
    """

    planner: str
    throughput: float | None
    decisions: str
    missing: float = 0.0
    memory: float | None = None
    devices: int | None = None
    seconds: float = field(default=0.0, eq=False)
    replayed: float | None = None
    launch: Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """For the JSON file, which names frameworks; their files lie beside it."""
        launch = None if self.launch is None else list(self.launch)
        return asdict(self, filter=lambda attribute, _: attribute.name != "launch") | {"runs_on": launch}


@frozen
class Outcome:
    """A cell with all its plans.

    Attributes:
        cell: what was planned.
        rows: ours first.
        status: of our plan.
        refuted: whether a plan is faster than ours is proved to be, which is a bug.
        seconds: wall-clock time of all searches together.
    """

    cell: Cell
    rows: tuple[Row, ...]
    status: str
    refuted: bool
    seconds: float = field(eq=False)

    def throughput(self, planner: str) -> float | None:
        """Samples per second of a planner's plan; None: it has none that fits."""
        return next((row.throughput for row in self.rows if row.planner == planner), None)

    def gain(self, planner: str) -> float | None:
        """How many times as fast our plan is; None where one of the two has no plan that fits."""
        ours, theirs = self.throughput(OURS), self.throughput(planner)
        return None if ours is None or theirs is None else ours / theirs

    def to_dict(self) -> dict[str, Any]:
        """For the JSON file."""
        return {
            "model": self.cell.model,
            "cluster": self.cell.cluster,
            "devices": self.cell.devices,
            "micro_batch": self.cell.micro_batch,
            "status": self.status,
            "seconds": round(self.seconds, 1),
            "schedule": self.cell.schedule,
            "plans": [row.to_dict() for row in self.rows],
        }


def measured(cells: Sequence[Cell], jobs: int = 1, planners: Sequence[str] | None = None) -> Iterator[Outcome]:
    """Every cell once, in order, so many at a time, by the planners named; None: by all."""
    each, measure = dict.fromkeys(cells), partial(_measured, planners=planners)
    if jobs == 1:
        yield from map(measure, each)
        return
    with ProcessPoolExecutor(jobs) as processes:
        yield from processes.map(measure, each)


def _measured(cell: Cell, planners: Sequence[str] | None = None) -> Outcome:
    begun = time.monotonic()
    found = nest.compare(cell.problem(), planners=planners, evaluations=EVALUATIONS, timings=True)
    seconds = time.monotonic() - begun
    whole = cell.schedule != BOUND  # Of a bound there is nothing to replay or to run.
    rows = [_row(OURS, found.ours, 0.0, (found.ours.diagnosis or "",), found.seconds, whole)]
    rows += [_row(each.name, each.plan, each.missing, each.reasons, each.seconds, whole) for each in found.others]
    return Outcome(cell, tuple(rows), found.ours.status, bool(found.refuting), seconds)


def _launch(plan: PlanDocument) -> dict[str, Mapping[str, str]]:
    """What is exported of a plan for each framework that can run it as it is."""
    # Plans of comparisons do not say how large the cluster is.
    devices = prod(level["fanout"] for level in plan.problem["cluster"]["levels"])
    whole = evolve(plan, summary={**plan.summary, "devices": devices})
    return {name: api.exported(whole, (name,)).files for name in runs_on(whole, registry())}


def _row(
    planner: str, plan: PlanDocument | None, missing: float, reasons: Sequence[str], seconds: float | None, whole: bool
) -> Row:
    if plan is None or plan.candidate is None:
        return Row(planner, None, " ".join(reasons), seconds=seconds or 0.0)
    degrees = [f"{name}{degree}" for name, degree in plan.candidate.degrees.items() if degree > 1]
    # What stages differ in is listed, each value once: most of what a plan costs may be one stage's.
    zero = "+".join(str(each) for each in sorted({stage.zero for stage in plan.stages}))
    recompute = "+".join(dict.fromkeys(stage.recompute_name for stage in plan.stages))
    decisions = " ".join(
        [*degrees, f"pp{len(plan.stages)}", f"x{plan.data_parallel}", f"zero{zero}", recompute, str(plan.rank_order)]
    )
    replay = api.simulate(plan) if whole and plan.fits else None
    return Row(
        planner,
        plan.throughput if plan.fits else None,
        decisions,
        missing,
        max(stage.memory for stage in plan.stages),
        plan.candidate.width * len(plan.stages) * (plan.data_parallel or 1),
        seconds or 0.0,
        None if replay is None else replay.batch_time / replay.closed_form,
        _launch(plan) if whole and plan.fits else None,
    )
