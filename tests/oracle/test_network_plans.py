"""The brute force on networks against a version that spells out everything, and against the one on levels."""

from itertools import permutations, product
from random import Random

import pytest

from tests.agreement.networks import KINDS
from tests.agreement.random_networks import random_network_problem
from tests.agreement.random_topologies import random_topology
from tests.oracle.brute_force import alone
from tests.oracle.check import same
from tests.oracle.network_plans import Search, describe, own_settings, solve
from tests.oracle.network_price import violations
from tests.oracle.partitions import partitions
from tests.oracle.parts import choices

FEW, MANY = 3_000, 9_000
"""Plans that are priced one by one: by default, and by `pytest -m slow`."""


def every_plan(problem: dict, search: Search):
    """All plans with all placements, rules and memory aside, in no order of replicas and with no bound."""
    profile, machine = problem["profile"], search.machine
    zeros = problem["search"]["zero"]
    for setting in own_settings(problem, machine):
        every = partitions(len(profile["layers"]), profile["edges"])
        plain = [alone(partition) for partition in every]
        for split in plain if setting.chunks == 1 else search.chunked(setting):
            for chosen in product(setting.candidates, repeat=len(split.stages)):
                used = sum(candidate["width"] for candidate in chosen) * setting.replicas
                modes = [list(product(choices(problem, candidate), zeros)) for candidate in chosen]
                orders = permutations(range(machine.size), used) if used <= machine.size else ()
                for order, choice in product(orders, product(*modes)):
                    yield describe(setting, split, chosen, placed(setting, chosen, order), choice)


def placed(setting, chosen, order) -> list[list[list[int]]]:
    """Blocks on devices, in this order."""
    left = iter(order)
    return [[[next(left) for _ in range(each["width"])] for each in chosen] for _ in range(setting.replicas)]


def small_problem(kind: str, seed: int, most: int) -> tuple[dict, Search, list[dict]] | None:
    """A problem with at most so many plans, and all of them that keep the rules and fit."""
    random = Random(seed)
    problem = KINDS[kind](random)
    problem["search"]["zero"] = random.choice([[0], [0, 2], [1, 3], [2, 3]])
    if seed % 2:
        problem["training"]["price"] = "replay"
    search = Search(problem)
    if search.machine.size > 5 or len(problem["profile"]["layers"]) > 4:
        return None
    plans = []
    for plan in every_plan(problem, search):
        plans.append(plan)
        if len(plans) > most:
            return None
    return problem, search, plans


@pytest.mark.longer
@pytest.mark.parametrize("most", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "last"), [("plain", 1045), ("mixed", 1030), ("sharded", 1080), ("chunked", 1080)])
def test_no_plan_that_is_spelled_out_is_better(kind, last, most):
    compared = 0
    for seed in range(1000, last):
        drawn = small_problem(kind, seed, most)
        if drawn is None:
            continue
        problem, search, plans = drawn
        kept = [plan for plan in plans if not violations(problem, plan, search.machine)]
        priced = [search.priced(plan) for plan in kept]
        times = [numbers["batch_time"] for numbers in priced if numbers["fits"]]
        answer = search.run()
        assert same(answer.batch_time, min(times, default=None)), seed
        compared += bool(times)
    assert compared > 2


@pytest.mark.longer
def test_random_networks_are_of_every_kind():
    topologies = [random_topology(Random(seed)) for seed in range(80)]
    assert {key for topology in topologies for key in topology} >= {"torus", "mesh", "matrix", "nodes", "graph"}
    answers = [solve(random_network_problem(Random(seed))) for seed in range(200, 230)]
    plans = [answer.plan for answer in answers if answer.plan is not None]
    assert 0 < len(answers) - len(plans) < len(answers) / 3
    assert {len(plan["stages"]) for plan in plans} >= {1, 2, 3}
    assert {plan["replicas"] for plan in plans} >= {1, 2}
    assert {len(plan["devices"][0][0]) for plan in plans} >= {1, 2}
