"""What CP-SAT answers."""

from collections.abc import Callable
from typing import Any

from attrs import frozen

from nest.instance import Solution
from nest.tolerances import PROOF


@frozen
class Price:
    """What exact pricing says of a plan.

    Attributes:
        batch_time: seconds.
        overfull: which stages need more memory than a plan may that is to refute another (docs/explanation/numbers.md).
    """

    batch_time: float
    overfull: tuple[bool, ...]


Pricing = Callable[[Solution], Price]


@frozen
class Verification:
    """The answer.

    Attributes:
        status: `proved`, `refuted` or `open`.
        batch_time: seconds of the plan given; None when the claim was that there is none.
        bound: seconds; no plan takes less. None where there is no plan.
        better: the best plan found, when refuted.
        better_batch_time: its seconds.
        settled: whether no plan is better than the best known by more than the tolerance: every case is settled.
        models: how often CP-SAT was asked.
        pruned: how many cases cheap bounds settled.
        cases: how many there were; a number of replicas and stages that a bound settles at once, whatever the modes,
            counts as one for each schedule and order of ranks.
        error: the largest error of the integers, as a share of the step time.
        seconds: spent.
        seed: of CP-SAT.
        workers: of CP-SAT.
        version: of OR-Tools.
        reason: why something is not settled.
        free: the answer for blocks anywhere, in any order, where that was asked too.
    """

    status: str
    batch_time: float | None
    bound: float | None
    better: Solution | None
    better_batch_time: float | None
    settled: bool
    models: int
    pruned: int
    cases: int
    error: float
    seconds: float
    seed: int
    workers: int
    version: str
    reason: str | None = None
    free: "Verification | None" = None

    @property
    def gap(self) -> float | None:
        """How far the best known plan can be above the best there is, as a share of the bound."""
        best = self.batch_time if self.better_batch_time is None else self.better_batch_time
        if best == 0:
            return 0.0  # No step takes less.
        return best / self.bound - 1 if best is not None and self.bound else None

    def summary(self) -> dict[str, Any]:
        """What a plan document states under `verification`."""
        fields: dict[str, Any] = {"status": self.status, "solver": "cp-sat", "bound": self.bound, "gap": self.gap}
        names = ("better_batch_time", "settled", "models", "pruned", "cases", "error", "seconds", "seed", "workers")
        fields |= {name: getattr(self, name) for name in names}
        fields |= {"tolerance": PROOF, "version": self.version, "reason": self.reason}
        if self.free is not None:
            fields["free"] = self.free.summary() | {"cost": self._cost_of_order()}
        return fields

    def _cost_of_order(self) -> float | None:
        """What keeping blocks in pipeline order costs, as a share of the step time without; None where open."""
        assert self.free is not None
        if self.free.status == "proved":
            return 0.0
        if self.free.batch_time is None or self.free.better_batch_time is None:
            return None
        return self.free.batch_time / self.free.better_batch_time - 1
