"""Ports: the oracle against the pricing of plans, the brute force against every plan, and the draws themselves."""

from collections import Counter
from copy import deepcopy
from random import Random

import pytest

from tests.agreement import draws
from tests.agreement.corners import push
from tests.agreement.draws import draw
from tests.agreement.ports import occupy
from tests.agreement.problems import random_plan, random_problem
from tests.made_up_collectives import Trees, with_models
from tests.oracle.brute_force import solve
from tests.oracle.check import same
from tests.oracle.costs import can_run
from tests.oracle.price import candidates_of, price

KINDS = ("plain", "mixed", "chunked", "sharded", "sharded mixed")


def with_ports(seed: int, kind: str) -> tuple[Random, dict]:
    """A random problem whose candidates say how busy ports are, sometimes in a further corner."""
    random = Random(f"{kind} {seed}")
    plain = {"sharded": "plain", "sharded mixed": "mixed"}.get(kind, kind)
    problem = random_problem(random, plain, sharded=plain != kind)
    if seed % 4 == 0:
        push(random, problem, "ports")
    else:
        occupy(random, problem)
    if kind == "chunked" and random.random() < 0.7:
        problem["training"]["schedule"] = ["interleaved"]
    if random.random() < 0.2:
        problem["collectives"] = "trees"
    return random, problem


def without_ports(problem: dict) -> dict:
    bare = deepcopy(problem)
    for candidate in bare["profile"]["candidates"]:
        for record in (candidate, *candidate["recompute"].values()):
            record.pop("busy", None)
    return bare


def runnable_plans(random: Random, problem: dict) -> list[dict]:
    """Some random plans, of two stages and more where there is room, whose layers can all run in their modes."""
    drawn = [plan for plan in (random_plan(random, problem, 2) for _ in range(4)) if plan is not None]
    return [
        plan
        for plan in drawn
        if all(
            can_run(candidate, stage["layers"], stage["recompute"])
            for stage, candidate in zip(plan["stages"], candidates_of(problem, plan), strict=True)
        )
    ]


def priced(problem: dict, plan: dict) -> list[tuple[float, float]]:
    """`t` and `y` of every stage, as the planner prices the plan, and then its batch time."""
    from nest.formulate.given import whole_problem
    from nest.formulate.instance import build_instance
    from nest.instance import Solution, StageDecision
    from nest.plan import evaluate

    known = with_models(Trees())
    asked = {key: value for key, value in problem.items() if key not in ("constraints", "fixed")}
    instance = build_instance(whole_problem(asked, known)[0], known)
    index = {candidate.name: number for number, candidate in enumerate(instance.candidates)}
    stages = tuple(
        StageDecision(tuple(s["layers"]), index[s["candidate"]], s["recompute"], s["zero"], s["offset"])
        for s in plan["stages"]
    )
    shared = (plan["replicas"], plan["rank_order"], plan["schedule"])
    found = evaluate(instance, Solution(*shared, stages, chunks=plan["chunks"], zero_degree=plan["zero_degree"]))
    return [*((stage.time, stage.sync) for stage in found.stages), (found.batch_time, found.sync)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_oracle_prices_busy_ports_as_the_planner_does(kind):
    counts: Counter[str] = Counter()
    for seed in range(40):
        random, problem = with_ports(seed, kind)
        bare = without_ports(problem)
        for plan in runnable_plans(random, problem):
            told = price(problem, plan)
            expected = [(stage["time"], stage["sync_time"]) for stage in told["stages"]]
            expected.append((told["batch_time"], max(sync for _, sync in expected)))
            for found, numbers in zip(priced(problem, plan), expected, strict=True):
                assert all(map(same, found, numbers)), (kind, seed, plan)
            counts["plans"] += 1
            counts[f"{plan['chunks'] > 1} chunks"] += 1
            for stage, alone in zip(told["stages"], price(bare, plan)["stages"], strict=True):
                counts["slower"] += stage["time"] > alone["time"] * (1 + 1e-9)
                counts["held up"] += stage["sync_time"] > alone["sync_time"] * (1 + 1e-9)
    assert counts["plans"] > 40
    assert counts["slower"] > counts["plans"] / 5
    assert counts["held up"] > 2
    assert (counts["True chunks"] > 20) == (kind == "chunked")


def test_busy_ports_often_change_the_best_plan():
    slower = other = 0
    for seed in range(60):
        _, problem = with_ports(seed, "plain")
        found, alone = solve(problem), solve(without_ports(problem))
        if found.plan is not None:
            slower += found.batch_time > alone.batch_time * (1 + 1e-9)
            other += price(problem, alone.plan)["batch_time"] > found.batch_time * (1 + 1e-9)
    assert slower > 12
    assert other > 3


def test_draws_in_the_corner_have_ports_and_are_otherwise_as_ever(monkeypatch):
    def told(problem: dict) -> bool:
        return any("busy" in candidate for candidate in problem["profile"]["candidates"])

    assert all(told(draw(seed, "mixed", corner="ports").problem) for seed in range(8))
    before = [draw(seed, "uneven").problem for seed in range(12)]
    monkeypatch.setattr(draws, "PORTS", 0.5)
    after = [draw(seed, "uneven") for seed in range(12)]
    assert 0 < sum("ports" in each.corners for each in after) < len(after)
    for plain, each in zip(before, after, strict=True):
        assert told(each.problem) == ("ports" in each.corners)
        if "ports" not in each.corners:
            assert each.problem == plain
