"""Current runs compared with plans of a problem: equal prices, and differences of the training."""

from math import isclose

from nest.io import unstructure
from nest.spec import PlanDocument, Problem
from nest.tolerances import AGREEMENT

DECIDED = ("schedule", "micro_batch")  # Keys of the training that list a plan's decisions.


def same_price(first: PlanDocument, second: PlanDocument) -> bool:
    """True if two documents of one plan have the same time and memory."""
    pairs = [(first.batch_time or 0.0, second.batch_time or 0.0)]
    pairs += [(one.memory, other.memory) for one, other in zip(first.stages, second.stages, strict=True)]
    return all(isclose(one, other, rel_tol=AGREEMENT) for one, other in pairs)


def trains_otherwise(ours: Problem, theirs: Problem) -> str:
    """Reason why a plan for the training of `theirs` is no plan of `ours`; empty: equal trainings."""
    mine, other = unstructure(ours.training), unstructure(theirs.training)
    names = ", ".join(name for name in other if name not in DECIDED and other[name] != mine.get(name))
    return f"Its training differs from the problem ({names}); nest prices it as the file has it."
