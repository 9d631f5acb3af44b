"""CP-SAT's own mistakes do not become proofs."""

from itertools import product
from random import Random

import pytest
from ortools.sat.python import cp_model

from nest.solve.effort import Deadline
from nest_cpsat.solver import Effort
from tests.seeds import seeds


def random_model(seed: int, largest: int) -> tuple[cp_model.CpModel, int | None]:
    """The larger of two weighted sums, as one literal or the other says, with the least it can be by trying."""
    random = Random(seed)
    model = cp_model.CpModel()
    taken = [model.new_bool_var("") for _ in range(5)]
    first, second = model.new_bool_var(""), model.new_bool_var("")
    model.add_exactly_one([first, second])
    top = 16 * largest
    spent, total = model.new_int_var(0, top, ""), model.new_int_var(0, top, "")
    one = [random.randint(1, largest) for _ in taken]
    two = [each + random.randint(0, largest) for each in one]
    for literal, weights in ((first, one), (second, two)):
        model.add(spent >= sum(w * t for w, t in zip(weights, taken, strict=True))).only_enforce_if(literal)
    sizes = [random.randint(1, 5) for _ in taken]
    least, factor = random.randint(1, sum(sizes)), random.randint(1, 3)
    model.add(sum(s * t for s, t in zip(sizes, taken, strict=True)) >= least)
    extra = [random.randint(0, largest) for _ in taken]
    model.add(total == factor * spent + sum(e * t for e, t in zip(extra, taken, strict=True)))
    model.minimize(total)
    totals = [
        factor * sum(w * t for w, t in zip(weights, bits, strict=True))
        + sum(e * t for e, t in zip(extra, bits, strict=True))
        for bits in product((0, 1), repeat=5)
        if sum(s * t for s, t in zip(sizes, bits, strict=True)) >= least
        for weights in (one, two)
    ]
    return model, min((each for each in totals if each <= top), default=None)


@pytest.mark.parametrize("seed", range(4))
def test_one_worker_settles_what_is_easy(seed: int) -> None:
    """Several that are interleaved may not end by themselves."""
    model, best = random_model(seed, 2**20)
    solver, status = Effort(2, 0, Deadline()).ask(model, 5.0)
    assert status == ("OPTIMAL" if best is not None else "INFEASIBLE")
    assert solver.parameters.num_workers == 1


@pytest.mark.parametrize("bits", [20, 30, 34])
@pytest.mark.parametrize("seed", seeds(3, 25))
def test_answers_are_right_where_presolve_alone_is_not(seed: int, bits: int) -> None:
    """OR-Tools 9.15 calls some of those with 34 bits infeasible."""
    model, best = random_model(seed, 2**bits)
    solver, status = Effort(1, 0, Deadline()).ask(model, 5.0)
    assert status == ("OPTIMAL" if best is not None else "INFEASIBLE")
    assert best is None or round(solver.objective_value) == best
