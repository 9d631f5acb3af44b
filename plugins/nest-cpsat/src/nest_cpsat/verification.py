"""Answers of CP-SAT."""

from collections.abc import Callable
from typing import Any

from attrs import frozen

from nest.instance import Solution
from nest.tolerances import PROOF


@frozen
class Price:
    """Exact price of a plan."""

    batch_time: float  # Seconds.
    # Stages that need more memory than a refuting plan may use (docs/explanation/numbers.md).
    overfull: tuple[bool, ...]


Pricing = Callable[[Solution], Price]


@frozen
class Verification:
    """Result of a verification."""

    status: str  # `proved`, `refuted` or `open`.
    batch_time: float | None  # Seconds of the given plan; None: the claim was that there is none.
    bound: float | None  # Lower bound in seconds; None: there is no plan.
    better: Solution | None  # Best plan found, if refuted.
    better_batch_time: float | None  # Its seconds.
    settled: bool  # Every case is settled: no plan beats the best known by more than the tolerance.
    models: int  # CP-SAT calls.
    pruned: int  # Cases settled by cheap bounds.
    cases: int  # Number of cases; replicas and stages settled at once count once per schedule and rank order.
    error: float  # Largest error of the integers, as a share of the step time.
    seconds: float  # Spent.
    seed: int
    workers: int
    version: str  # Of OR-Tools.
    reason: str | None = None  # Why something is unsettled.
    free: "Verification | None" = None  # Result for blocks anywhere, in any order, if requested.

    @property
    def gap(self) -> float | None:
        """Relative gap between the best known plan and the bound."""
        best = self.batch_time if self.better_batch_time is None else self.better_batch_time
        if best == 0:
            return 0.0  # No step takes less.
        return best / self.bound - 1 if best is not None and self.bound else None

    def summary(self) -> dict[str, Any]:
        """Entries of a plan document's `verification`."""
        fields: dict[str, Any] = {"status": self.status, "solver": "cp-sat", "bound": self.bound, "gap": self.gap}
        names = ("better_batch_time", "settled", "models", "pruned", "cases", "error", "seconds", "seed", "workers")
        fields |= {name: getattr(self, name) for name in names}
        fields |= {"tolerance": PROOF, "version": self.version, "reason": self.reason}
        if self.free is not None:
            fields["free"] = self.free.summary() | {"cost": self._cost_of_order()}
        return fields

    def _cost_of_order(self) -> float | None:
        """Relative cost of keeping blocks in pipeline order; None: unknown."""
        assert self.free is not None
        if self.free.status == "proved":
            return 0.0
        if self.free.batch_time is None or self.free.better_batch_time is None:
            return None
        return self.free.batch_time / self.free.better_batch_time - 1
