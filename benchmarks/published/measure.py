"""What nest says of a published run: the price of its layout, and the best plan for its task."""

from collections.abc import Iterable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

from attrs import frozen

import nest
from benchmarks.published.runs import PublishedRun
from nest.spec import PlanDocument

Decisions = dict[str, str]
"""Decisions of a plan by the names that `fixed` has for them."""


@frozen
class Outcome:
    """What was found of one run.

    Attributes:
        run: as published.
        priced: its layout.
        best: the best plan within its framework, nothing else being asked; None: the search had no answer in time.
        seconds: that the searches took.
    """

    run: PublishedRun
    priced: PlanDocument
    best: PlanDocument | None
    seconds: float

    @property
    def error(self) -> float:
        """Predicted over published step time, less 1."""
        assert self.priced.batch_time is not None
        return self.priced.batch_time / self.run.batch_time - 1.0

    @property
    def faster(self) -> float | None:
        """Share of the predicted step time that the best plan is said to save; None where there is none."""
        if self.best is None or self.best.batch_time is None:
            return None
        assert self.priced.batch_time is not None
        return 1.0 - self.best.batch_time / self.priced.batch_time

    @property
    def changed(self) -> list[tuple[str, str, str]]:
        """Decisions in which the best plan differs: the name, as published, and in the best plan."""
        if self.best is None or self.best.batch_time is None:
            return []
        ours, theirs = decisions(self.best), decisions(self.priced)
        return [(name, theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name]]


def measured(run: PublishedRun, time_limit: float) -> Outcome:
    """Price the layout of `run` and look for the best plan for `time_limit` seconds at most."""
    priced = nest.evaluate(run.problem)
    begun = monotonic()
    return Outcome(run, priced, solved(run.open, time_limit), monotonic() - begun)


def solved(problem: dict[str, Any], time_limit: float) -> PlanDocument | None:
    """The best plan found in `time_limit` seconds; None where there was no answer in three times as long.

    In a process of its own: that nothing fits is explained after the limit, and that may take much longer.
    """
    ours, theirs = get_context("fork").Pipe(duplex=False)
    child = get_context("fork").Process(target=_solve, args=(problem, time_limit, theirs))
    child.start()
    theirs.close()
    try:
        if not ours.poll(3 * time_limit):
            return None
        found: PlanDocument = ours.recv()
        return found
    finally:
        child.terminate()
        child.join()


def _solve(problem: dict[str, Any], time_limit: float, told: Connection) -> None:
    told.send(nest.solve(problem, time_limit=time_limit))


def decisions(plan: PlanDocument) -> Decisions:
    """What a plan decides; where stages differ, all that there is among them."""
    assert plan.candidate is not None
    degrees = plan.candidate.degrees
    block = degrees.get("tp", 1) * degrees.get("cp", 1)
    dp = (plan.data_parallel or 1) * plan.candidate.width // block
    return {
        "tp": str(degrees.get("tp", 1)),
        "sp": "yes" if degrees.get("sp", 1) > 1 else "no",
        "cp": str(degrees.get("cp", 1)),
        "ep": str(degrees.get("ep", 1)),
        "etp": str(degrees.get("etp", 1)),
        "pp": str(len(plan.stages)),
        "chunks": str(plan.chunks or 1),
        "dp": str(dp),
        "micro-batch": str(plan.candidate.micro_batch or plan.candidate.samples),
        "ZeRO": _all(stage.zero for stage in plan.stages),
        "recompute": _all(stage.recompute_name for stage in plan.stages),
        "schedule": str(plan.schedule),
        "rank order": str(plan.rank_order),
    }


def _all(values: Iterable[object]) -> str:
    return "/".join(dict.fromkeys(str(each) for each in values))


def inside(plan: PlanDocument, run: PublishedRun) -> bool:
    """Whether ranks of tensor parallelism, which are neighbours, all lie in one innermost group (NVLink)."""
    domain = int(run.problem["cluster"]["levels"][0]["fanout"])
    return plan.candidate is None or domain % plan.candidate.degrees.get("tp", 1) == 0
