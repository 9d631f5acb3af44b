"""Results of a check: losses and gradients of a plan and of one process, and their differences."""

from collections.abc import Mapping, Sequence
from sys import float_info
from typing import Any

from attrs import frozen

from nest.spec import PlanDocument


@frozen
class Difference:
    """First difference of the plan's training from that of one process.

    Attributes:
        what: `loss`, `gradient norm`, `gradient` or `output`.
        step: of the training, 0 first.
        name: of the parameter or module; empty: of the whole module.
        rank: of the process; -1: of all together.
        value: of the plan.
        expected: of one process.
    """

    what: str
    step: int
    name: str
    rank: int
    value: float
    expected: float

    def __str__(self) -> str:
        place = f" of {self.name}" if self.name else ""
        where = f" on rank {self.rank}" if self.rank >= 0 else ""
        return (
            f"step {self.step}: the {self.what}{place}{where} is {self.value:.9g}, where one process has "
            f"{self.expected:.9g}"
        )


@frozen
class Execution:
    """Observations of a check.

    Attributes:
        plan: that ran: the one given, or one of the same shape on fewer ranks.
        ranks: processes.
        losses: of each step.
        expected_losses: of one process.
        norms: of all gradients in each step.
        expected_norms: of one process.
        differences: beyond the tolerance; none: the plan trains the same.
        tolerance: relative.
    """

    plan: PlanDocument
    ranks: int
    losses: tuple[float, ...]
    expected_losses: tuple[float, ...]
    norms: tuple[float, ...]
    expected_norms: tuple[float, ...]
    differences: tuple[Difference, ...]
    tolerance: float

    @property
    def ok(self) -> bool:
        """True if every loss and gradient norm is that of one process."""
        return not self.differences

    @property
    def largest(self) -> float:
        """The largest relative difference of a loss or gradient norm."""
        pairs = zip((*self.losses, *self.norms), (*self.expected_losses, *self.expected_norms), strict=True)
        return max(_apart(one, other) for one, other in pairs)


def differences(expected: dict[str, Any], ranks: Sequence[dict[str, Any]], tolerance: float) -> list[Difference]:
    """Losses and gradient norms further apart than `tolerance`, behind the modules that they come from."""
    found = []
    for what, key in (("loss", "losses"), ("gradient norm", "norms")):
        for step, (one, other) in enumerate(zip(ranks[0][key], expected[key], strict=True)):
            if _apart(one, other) > tolerance:
                found.append(Difference(what, step, "", -1, one, other))
    if not found:
        return []
    return [*_outputs_apart(expected, ranks, tolerance), *_gradients_apart(expected, ranks, tolerance), *found]


def _outputs_apart(expected: dict[str, Any], ranks: Sequence[dict[str, Any]], tolerance: float) -> list[Difference]:
    """Of the first module whose output differs, each rank that has it."""
    for name in expected["parts"]:
        found = []
        for rank, result in enumerate(ranks):
            if name not in result["outputs"]:
                continue
            whole = expected["outputs"][result["place"]["micro_batch"]][name]
            seen = result["outputs"][name]
            part = _share(whole, seen, result["place"])
            if part is None:
                found.append(Difference("number of elements", 0, name, rank, seen.numel(), whole.numel()))
            elif _apart_tensors(seen, part) > tolerance:
                found.append(Difference("norm of the output", 0, name, rank, float(seen.norm()), float(part.norm())))
        if found:
            return found
    return []


def _share(whole: Any, seen: Any, place: Mapping[str, int]) -> Any:
    """The share of `whole` that a rank has."""
    for ranks, rank in (("cp", "cp_rank"), ("tp", "tp_rank")):
        if whole.shape != seen.shape and whole.dim() > 1 and place[ranks] > 1:
            whole = whole.chunk(place[ranks], 1)[place[rank]]
    return whole if whole.shape == seen.shape else None


def _gradients_apart(expected: dict[str, Any], ranks: Sequence[dict[str, Any]], tolerance: float) -> list[Difference]:
    """Parameters whose gradient has another norm in the first step, the most different first."""
    seen = ranks[0]["gradients"]
    scale = expected["norms"][0] ** 2
    rows = []
    for name, square in expected["gradients"].items():
        one = seen.get(name, 0.0)
        if abs(one - square) > tolerance * max(square, 1e-3 * scale):
            rows.append(Difference("gradient norm", 0, name, -1, one**0.5, square**0.5))
    return sorted(rows, key=lambda each: -_apart(each.value, each.expected))[:8]


def _apart(one: float, other: float) -> float:
    return abs(one - other) / max(abs(other), float_info.min) if one == one else float("inf")


def _apart_tensors(one: Any, other: Any) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm().clamp_min(float_info.min))
