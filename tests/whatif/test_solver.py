"""Each problem is solved once, exactly, and what wider limits imply is not solved."""

from random import Random

import pytest
from attrs import evolve

from nest import api
from nest.formulate.cluster import build_cluster
from nest.io import structure
from nest.report.plan_summary import needed_memory
from nest.spec import Problem
from nest.whatif.parameters import with_memory
from nest.whatif.solver import Solver, at_most, devices_used
from tests.agreement.problems import random_problem
from tests.agreement.random_pools import random_pool_problem
from tests.oracle.brute_force import solve
from tests.oracle.check import check_document, plan_of, same
from tests.oracle.price import violations
from tests.whatif.small import solved


def problem_of(seed: int, kind: str = "plain") -> Problem:
    return structure(random_problem(Random(seed), kind), Problem)


def test_a_problem_is_solved_once_however_it_is_written() -> None:
    told: list[tuple[str, int]] = []
    solver = Solver(progress=lambda asking, done: told.append((asking, done)))
    problem = problem_of(1)
    first = solver.plan(problem, "first")
    turned = structure(dict(reversed(problem.to_dict().items())), Problem)
    assert turned.text == problem.text
    assert solver.plan(turned, "second") is first
    solver.plan(at_most(problem, 1), "third")
    assert solver.solves == 2
    assert told == [("first", 0), ("third", 1)]


def test_what_cannot_be_is_an_answer() -> None:
    problem = problem_of(1)
    refused = evolve(problem, constraints=("no_such_name <= 3",))
    assert Solver().plan(refused) is None
    bare = evolve(problem, cluster=evolve(problem.cluster, reserve=0.0))
    nothing = Solver().plan(with_memory(bare, 1e-20))
    assert nothing is not None
    assert (nothing.status, nothing.batch_time) == ("infeasible", None)
    assert nothing.diagnosis


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked"])
def test_to_begin_with_a_plan_changes_nothing_but_ties(kind: str) -> None:
    stayed = 0
    for plan, problem, _ in solved(range(4), kind):
        cluster, _ = build_cluster(problem.cluster, Solver().plugins)
        needed = max(needed_memory(plan), 1e-6)
        fewer = at_most(problem, cluster.size // 2)
        for changed in (fewer, *(with_memory(problem, each) for each in (cluster.device_memory / 2, needed))):
            plain, begun = Solver().plan(changed), Solver().plan(changed, start=plan)
            if plain is None or begun is None:
                assert plain is begun
                continue
            assert same(begun.batch_time, plain.batch_time, 1e-12)
            kept = Solver().time_on(changed, plan)
            if kept is not None and same(kept, plain.batch_time, 1e-12):
                stayed += 1
                assert begun.stages == plan.stages
    assert stayed


@pytest.mark.longer
def test_what_wider_limits_imply_is_exact() -> None:
    spared = 0
    for _, problem, solver in solved(range(4)):
        cluster, _ = build_cluster(problem.cluster, solver.plugins)
        size, memory = cluster.size, cluster.device_memory
        for devices in sorted({size, max(size // 2, 1), max(size // 3, 1)}, reverse=True):
            for share in (2.0, 1.0, 0.9, 0.6, 0.3):
                if share * memory <= cluster.reserve:
                    continue
                before = solver.solves
                found = solver.within(problem, devices, share * memory, size)
                asked = with_memory(at_most(problem, devices), share * memory)
                assert same(None if found is None else found.batch_time, solve(asked.to_dict()).batch_time)
                if found is not None and found.batch_time is not None:
                    assert devices_used(found) <= devices
                    assert needed_memory(found) <= share * memory * (1 + 1e-12)
                    assert not violations(asked.to_dict(), plan_of(found.to_dict()))
                    assert check_document(found.to_dict()) == []
                spared += solver.solves == before
    assert spared


@pytest.mark.longer
def test_what_another_was_asked_alike_counts_but_is_not_searched_for_again() -> None:
    for plan, problem, solver in solved(range(4)):
        changed, met = evolve(problem, constraints=(*problem.constraints, f"pp != {len(plan.stages)}")), []
        for start in (None, plan, None):
            asked, alone = solver.with_new_counters(), Solver().plan(changed, start=start)
            met.append(asked.plan(changed, start=start))
            assert (None if met[-1] is None else met[-1].stages) == (None if alone is None else alone.stages)
            assert asked.solves == 1
        assert met[0] is met[2]


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked"])
def test_plans_met_before_change_no_answer(kind: str) -> None:
    begun_with = 0
    for plan, problem, _ in solved(range(4), kind):
        cluster, _ = build_cluster(problem.cluster, Solver().plugins)
        size, memory = cluster.size, cluster.device_memory
        varied = [with_memory(problem, share * memory) for share in (0.95, 1.5, 0.9)]
        varied += [
            evolve(problem, constraints=(*problem.constraints, demand))
            for demand in (f"replicas != {plan.data_parallel}", f"pp != {len(plan.stages)}", f"devices < {size}")
        ]
        practised = Solver()
        practised.know(problem, plan)
        for changed in varied:
            met, alone = practised.plan(changed), Solver().plan(changed)
            assert (met is None) == (alone is None)
            if met is None or alone is None:
                continue
            assert (met.status, met.diagnosis) == (alone.status, alone.diagnosis)
            assert same(met.batch_time, alone.batch_time, 1e-12)
            if met.batch_time is not None:
                assert met.stages == alone.stages
                assert (met.data_parallel, met.schedule, met.rank_order) == (
                    alone.data_parallel,
                    alone.schedule,
                    alone.rank_order,
                )
                begun_with += met.statistics != alone.statistics
    assert begun_with


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked", "pools"])
def test_whether_there_is_a_plan_does_not_hang_on_saying_why(kind: str) -> None:
    asked = 0
    for seed in range(24):
        pooled = structure(random_pool_problem(Random(seed)), Problem) if kind == "pools" else None
        problem, solver = pooled or problem_of(seed, kind), Solver()
        quick = solver.plan(problem, diagnosed=False)
        why = solver.plan(problem)
        assert quick is not None
        assert why is not None
        assert (quick.status, quick.batch_time, quick.stages) == (why.status, why.batch_time, why.stages)
        if why.status == "infeasible":
            asked += 1
            assert quick.diagnosis == ""
            assert why.diagnosis == api.solve(problem).diagnosis
    assert asked
