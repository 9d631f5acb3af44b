"""Planning a cell with every planner."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import field, frozen

from benchmarks.paper.cells import Cell
from nest import api
from nest.spec import PlanDocument

EVALUATIONS = 500
"""Plans that the random search may price in each cell."""

OURS = "nest"
EQUAL = 1e-6
"""Shares of the step time below which two plans are called equally fast."""


@frozen
class Row:
    """One planner's plan of a cell.

    Attributes:
        planner: its name; `nest` is ours.
        throughput: samples per second; None: it has no plan that fits.
        told: its decisions in short, or why there is none.
        missing: bytes its fullest stage needs beyond those of a device.
    """

    planner: str
    throughput: float | None
    told: str
    missing: float = 0.0


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
            "plans": [
                {
                    "planner": row.planner,
                    "throughput": row.throughput,
                    "missing_bytes": row.missing,
                    "told": row.told,
                }
                for row in self.rows
            ],
        }


def measured(cells: Sequence[Cell]) -> Iterator[Outcome]:
    """Every cell once, in order."""
    for cell in dict.fromkeys(cells):
        yield _measured(cell)


def _measured(cell: Cell) -> Outcome:
    begun = time.monotonic()
    found = api.compare(cell.problem(), evaluations=EVALUATIONS)
    seconds = time.monotonic() - begun
    rows = [_row(OURS, found.ours, 0.0, (found.ours.diagnosis or "",))]
    rows += [_row(each.name, each.plan, each.missing, each.reasons) for each in found.others]
    return Outcome(cell, tuple(rows), found.ours.status, bool(found.refuting), seconds)


def _row(planner: str, plan: PlanDocument | None, missing: float, reasons: Sequence[str]) -> Row:
    if plan is None or plan.candidate is None:
        return Row(planner, None, " ".join(reasons))
    degrees = [f"{name}{degree}" for name, degree in plan.candidate.degrees.items() if degree > 1]
    # What stages differ in is listed, each value once: most of what a plan costs may be one stage's.
    zero = "+".join(str(each) for each in sorted({stage.zero for stage in plan.stages}))
    recompute = "+".join(dict.fromkeys(stage.recompute for stage in plan.stages))
    told = " ".join(
        [*degrees, f"pp{len(plan.stages)}", f"x{plan.data_parallel}", f"zero{zero}", recompute, str(plan.rank_order)]
    )
    return Row(planner, plan.throughput if plan.fits else None, told, missing)
