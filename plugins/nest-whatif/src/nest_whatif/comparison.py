"""Compared plans: which of them count, and which are faster."""

from typing import Any

from attrs import field, frozen

from nest.errors import InternalError
from nest.public.text import apart
from nest.spec import PlanDocument
from nest.tolerances import AGREEMENT


@frozen
class Entry:
    """One plan of a comparison."""

    name: str  # Of the planner, or of the file.
    summary: str  # One line on the plan's origin.
    plan: PlanDocument | None  # Priced on the problem; None: there is none.
    # Why there is none, or why it is not of this problem, a sentence each; empty otherwise.
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()  # Of the planner, a sentence each.
    bound: float | None = None  # Lower bound (s per step) by the planner's own objective; None: none.
    missing: float = 0.0  # Bytes of its fullest stage beyond the limit of a search.
    refutes: bool = True  # It fits safely enough that it must not be faster than a proved plan.
    seconds: float | None = field(default=None, eq=False)  # Wall-clock time of the decision; None: untimed.

    @property
    def counts(self) -> bool:
        """True for a plan that a search of the problem admits, so that the best plan must be as fast."""
        return self.plan is not None and not self.missing and not self.reasons

    @property
    def batch_time(self) -> float | None:
        """Seconds per optimizer step; None: there is no plan."""
        return None if self.plan is None else self.plan.batch_time


def _is_below(entry: Entry, seconds: float | None) -> bool:
    return entry.batch_time is not None and (seconds is None or entry.batch_time < seconds * (1 - AGREEMENT))


@frozen
class Comparison:
    """The best plan and others."""

    ours: PlanDocument  # Result of `nest solve`.
    others: tuple[Entry, ...]  # In the order requested, with plug-ins that failed.
    seed: int  # Of planners that draw random numbers.
    evaluations: int  # Plans that planners were allowed to price.
    # Wall-clock time of the search for the best plan; None: untimed.
    seconds: float | None = field(default=None, eq=False)
    by_levels: str | None = None  # Note that plans are decided by levels of a non-hierarchical network; None: no note.

    def relative(self, entry: Entry) -> float | None:
        """Ratio of a plan's step time to the best plan's; None: undefined."""
        if entry.batch_time is None or not self.ours.batch_time:
            return None
        return entry.batch_time / self.ours.batch_time

    def is_distinguishable(self, entry: Entry) -> bool | None:
        """True if predictions are precise enough to rank the two plans; None: undefined."""
        relative = self.relative(entry)
        return None if relative is None else max(relative, 1 / relative) - 1 >= apart(self.ours)

    @property
    def faster(self) -> tuple[Entry, ...]:
        """Admitted plans of the problem that are faster than the best one."""
        return tuple(each for each in self.others if each.counts and _is_below(each, self.ours.batch_time))

    @property
    def refuting(self) -> tuple[Entry, ...]:
        """Those below the proved bound, which is impossible."""
        return tuple(each for each in self.faster if each.refutes and _is_below(each, self.ours.lower_bound))

    def assert_unbeaten(self) -> None:
        """Check that no plan is faster than the proved one.

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
        """Convert to plain mappings, lists and numbers."""
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
