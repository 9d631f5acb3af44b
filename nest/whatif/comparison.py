"""Plans that are compared: ours and others, which of them count, and which are faster."""

from typing import Any

from attrs import field, frozen

from nest.errors import InternalError
from nest.report.other_plans import apart
from nest.spec import PlanDocument
from nest.tolerances import AGREEMENT


@frozen
class Entry:
    """One plan of a comparison.

    Attributes:
        name: the planner's, or that of the file.
        summary: one line on where the plan comes from.
        plan: the plan, priced on the problem; None: there is none.
        reasons: why there is none, or why it is none of the problem's, a sentence each; none: it is one.
        remarks: what the planner tells, a sentence each.
        bound: seconds per step that no plan is below by its planner's own objective; None: it proves nothing.
        missing: bytes that its fullest stage needs beyond those that a search of the problem admits.
        refutes: whether it fits so closely that it may not be faster than a plan that is proved.
        seconds: wall-clock time that deciding took; None: nobody was asked to time it.
    """

    name: str
    summary: str
    plan: PlanDocument | None
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    bound: float | None = None
    missing: float = 0.0
    refutes: bool = True
    seconds: float | None = field(default=None, eq=False)

    @property
    def counts(self) -> bool:
        """Whether it is a plan that a search of the problem admits, so that ours must be as fast."""
        return self.plan is not None and not self.missing and not self.reasons

    @property
    def batch_time(self) -> float | None:
        """Seconds per optimizer step; None where there is no plan."""
        return None if self.plan is None else self.plan.batch_time


def _is_below(entry: Entry, seconds: float | None) -> bool:
    """Whether a plan takes less; None: whatever it takes is less."""
    return entry.batch_time is not None and (seconds is None or entry.batch_time < seconds * (1 - AGREEMENT))


@frozen
class Comparison:
    """Our plan and others.

    Attributes:
        ours: as `nest solve` finds it.
        others: in the order asked for, those of plug-ins that failed included.
        seed: of planners that draw random numbers.
        evaluations: plans that planners which try plans out were allowed to price.
        seconds: wall-clock time of the search for our plan; None: nobody was asked to time it.
        by_levels: that plans are decided by the levels of a network that is no hierarchy, and whose; None: it is one.
    """

    ours: PlanDocument
    others: tuple[Entry, ...]
    seed: int
    evaluations: int
    seconds: float | None = field(default=None, eq=False)
    by_levels: str | None = None

    def relative(self, entry: Entry) -> float | None:
        """How many times as long as ours a plan takes; None where there is no such number."""
        if entry.batch_time is None or not self.ours.batch_time:
            return None
        return entry.batch_time / self.ours.batch_time

    def is_distinguishable(self, entry: Entry) -> bool | None:
        """Whether predictions are sure enough to say which plan is faster; None where there is no such number."""
        relative = self.relative(entry)
        return None if relative is None else max(relative, 1 / relative) - 1 >= apart(self.ours)

    @property
    def faster(self) -> tuple[Entry, ...]:
        """Plans of the problem that its search admits and that are faster than ours."""
        return tuple(each for each in self.others if each.counts and _is_below(each, self.ours.batch_time))

    @property
    def refuting(self) -> tuple[Entry, ...]:
        """Those among them that cannot be: faster than what was proved that no plan is faster than."""
        return tuple(each for each in self.faster if each.refutes and _is_below(each, self.ours.lower_bound))

    def assert_unbeaten(self) -> None:
        """Our plan is proved to be the fastest, so that a faster one shows a bug of ours.

        Raises:
            InternalError: one is faster than the bound proved.
        """
        for each in self.refuting:
            raise InternalError(
                f"the plan of {each.name} takes {each.batch_time:.9g} s, but nest claims that no plan takes less than "
                f"{self.ours.lower_bound} s (status {self.ours.status}). This is a bug in nest; please report it with "
                "the problem file."
            )

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain mappings, lists and numbers; times only where somebody asked for them."""
        timed = self.seconds is not None
        return {
            "plan": self.ours.to_dict(),
            "others": [
                {
                    "name": each.name,
                    "summary": each.summary,
                    "batch_time": each.batch_time,
                    "relative": self.relative(each),
                    "told_apart": self.is_distinguishable(each),
                    "within_problem": each.plan is not None and not each.reasons,
                    "fits": each.plan is not None and each.plan.fits,
                    "missing_bytes": each.missing,
                    "reasons": list(each.reasons),
                    "remarks": list(each.remarks),
                    "bound": each.bound,
                    "plan": None if each.plan is None else each.plan.to_dict(),
                    **({"seconds": each.seconds} if timed else {}),
                }
                for each in self.others
            ],
            **({"seconds": self.seconds} if timed else {}),
            "by_levels": self.by_levels,
            "seed": self.seed,
            "evaluations": self.evaluations,
        }
