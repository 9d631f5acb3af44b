"""The proof asked of step times, and the answers it owes wherever the optimum is known."""

from itertools import pairwise
from typing import Any

import pytest

from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Instance, Solution
from nest.io import structure
from nest.plan.evaluate import evaluate
from nest.plan.legality import permission_violations, structure_violations
from nest.spec import Problem
from nest_cpsat import Price, Verification, verify
from tests.oracle.document import document_of

CLOSE = 2e-6
"""A better plan is the best up to 1e-6, and is found with integers that are off by much less."""


def instance_of(problem: dict[str, Any]) -> Instance:
    return build_instance(structure(problem, Problem), registry())


def document(problem: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """A plan of the oracle as a search could have written it."""
    written: dict[str, Any] = document_of(problem, plan) | {"verification": None}
    for stage in written["stages"]:
        del stage["offset"]
    return written


def ask(problem: Instance, batch_time: float | None, **options: Any) -> Verification:
    """Verify a step time; every plan CP-SAT comes up with must be one of the space."""

    def pricing(solution: Solution) -> Price:
        broken = structure_violations(problem, solution)
        if options.get("free"):
            broken = [each for each in broken if "overlaps or precedes" not in each]
            taken = sorted((stage.offset, problem.candidates[stage.candidate].width) for stage in solution.stages)
            assert all(one + width <= two for (one, width), (two, _) in pairwise(taken))
        assert broken == []
        assert permission_violations(problem, solution) == []
        priced = evaluate(problem, solution)
        return Price(priced.batch_time, priced.overfull)

    return verify(problem, batch_time, pricing, **options)


def settles(problem: Instance, best: float | None, *factors: float) -> None:
    """The best step time, or that there is no plan, is proved; times longer by the factors are refuted by the best."""
    answer = ask(problem, best)
    assert answer.status == "proved", (best, answer)
    assert answer.settled
    for factor in factors if best is not None else ():
        found = ask(problem, factor * best)
        assert found.status == "refuted", factor
        assert found.settled, factor
        assert found.better_batch_time == pytest.approx(best, rel=CLOSE), factor
