"""The generator reaches every corner it is meant to reach."""

from itertools import pairwise
from random import Random

import pytest

from tests.agreement.draws import draw
from tests.agreement.problems import random_problem
from tests.oracle.brute_force import solve
from tests.oracle.network import Network


@pytest.fixture(scope="module")
def problems() -> list[dict]:
    return [random_problem(Random(seed)) for seed in range(300)]


@pytest.fixture(scope="module")
def mixed(problems: list[dict]) -> list[dict]:
    return [problem for problem in problems if problem.get("search", {}).get("mixed")]


def candidates(problem):
    return problem["profile"]["candidates"]


def edges(problem):
    return problem["profile"]["edges"]


def widths(problem):
    return {candidate["width"] for candidate in candidates(problem)}


def idle(problem):
    """Layers that take no time and have one edge at most."""
    ends = [layer for edge in edges(problem) for layer in edge]
    free = [
        i for i in range(len(problem["profile"]["layers"])) if not any(c["forward"][i] for c in candidates(problem))
    ]
    return [layer for layer in free if ends.count(layer) <= 1]


def falls(values) -> bool:
    return any(one > two for one, two in pairwise(values))


def has_gap(problem, plan) -> bool:
    if plan is None:
        return False
    width = {candidate["name"]: candidate["width"] for candidate in candidates(problem)}
    return any(two["offset"] - one["offset"] > width[one["candidate"]] for one, two in pairwise(plan["stages"]))


CORNERS = {
    "layers that cost the same": lambda p: all(
        len(set(c["forward"])) < len(c["forward"]) > 2 and len(set(c["edge_bytes"])) == 1 for c in candidates(p)
    ),
    "branches": lambda p: len({a for a, _ in edges(p)}) < len(edges(p)),
    "several sinks": lambda p: len({a for a, _ in edges(p)}) < len(p["profile"]["layers"]) - 1,
    "no edges among several layers": lambda p: not edges(p) and len(p["profile"]["layers"]) > 1,
    "layers numbered against their order": lambda p: any(a > b for a, b in edges(p)),
    "one layer": lambda p: len(p["profile"]["layers"]) == 1,
    "one device": lambda p: Network(p["cluster"]).size == 1,
    "twelve devices": lambda p: Network(p["cluster"]).size == 12,
    "fan-out one": lambda p: 1 in Network(p["cluster"]).fanouts,
    "no latency": lambda p: 0.0 in Network(p["cluster"]).latencies,
    "an outer level faster than an inner one": lambda p: falls([-b for b in Network(p["cluster"]).bandwidths]),
    "a reserve": lambda p: p["cluster"].get("reserve", 0.0) > 0,
    "width three": lambda p: any(c["width"] == 3 for c in candidates(p)),
    "different widths": lambda p: len(widths(p)) > 1,
    "a dangling layer that does nothing": lambda p: len(p["profile"]["layers"]) > 2 and idle(p),
    "an idle layer without edges": lambda p: any(all(i not in edge for edge in edges(p)) for i in idle(p)),
    "several groups": lambda p: any(len(c["state"]) > 1 for c in candidates(p)),
    "copies that are counted": lambda p: any(c.get("micro_batch", c["samples"]) < c["samples"] for c in candidates(p)),
    "no state": lambda p: any(not c["state"] for c in candidates(p)),
    "shared ranks": lambda p: any(len(g["ranks"]) > 1 for c in candidates(p) for g in c["state"].values()),
    "stashed inputs": lambda p: any(r["stash_inputs"] for c in candidates(p) for r in c["recompute"].values()),
    "nothing more": lambda p: any(not any(r["more"]) for c in candidates(p) for r in c["recompute"].values()),
    "tensors without bytes": lambda p: any(0.0 in c["edge_bytes"] for c in candidates(p)),
    "schedules to choose from": lambda p: isinstance(p["training"].get("schedule"), list),
    "no schedule": lambda p: "schedule" not in p["training"],
    "uneven batch": lambda p: p["training"].get("uneven_batch", False),
    "overlapped data parallelism": lambda p: p["training"].get("overlap", {}).get("data", False),
    "same_stage": lambda p: any("same_stage" in text for text in p.get("constraints", [])),
    "uniform": lambda p: any("uniform" in text for text in p.get("constraints", [])),
    "a rule for each stage": lambda p: any("zero " in text for text in p.get("constraints", [])),
    "fixed stages": lambda p: "stages" in p.get("fixed", {}),
    "fixed degrees": lambda p: "tp" in p.get("fixed", {}),
}


MIXED_CORNERS = {
    "different widths": lambda p: len(widths(p)) > 1,
    "widths of which none divides the other": lambda p: {2, 3} <= widths(p),
    "several candidates of one width": lambda p: len(widths(p)) < len(candidates(p)),
    "different samples": lambda p: len({c["samples"] for c in candidates(p)}) > 1,
    "branches": CORNERS["branches"],
    "a limit on devices": lambda p: any(text.startswith("devices") for text in p.get("constraints", [])),
    "a rule on degrees": lambda p: any("tp" in text for text in p.get("constraints", [])),
    "a rule on data-parallel ranks": lambda p: any(text.startswith("dp") for text in p.get("constraints", [])),
    "uniform": CORNERS["uniform"],
    "same_stage": CORNERS["same_stage"],
    "fixed": lambda p: "fixed" in p,
}


@pytest.mark.longer
@pytest.mark.parametrize("corner", CORNERS)
def test_the_generator_reaches(corner, problems):
    assert any(CORNERS[corner](problem) for problem in problems)


@pytest.mark.longer
@pytest.mark.parametrize("corner", MIXED_CORNERS)
def test_mixed_problems_reach(corner, mixed):
    assert any(MIXED_CORNERS[corner](problem) for problem in mixed)


def test_a_quarter_of_the_problems_mixes(problems, mixed):
    assert 0.15 < len(mixed) / len(problems) < 0.35


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sharded", "sharded mixed"])
def test_shard_groups_often_part_the_ranks(kind):
    parting = 0
    for seed in range(120):
        drawn = draw(seed, kind)
        problem, plan = drawn.problem, drawn.answer.plan
        groups = [] if plan is None or plan["zero_degree"] is None else plan["stages"]
        named = {candidate["name"]: candidate for candidate in candidates(problem)}
        parting += any(
            stage["zero"] and plan["replicas"] * len(group["ranks"]) > plan["zero_degree"]
            for stage in groups
            for group in named[stage["candidate"]]["state"].values()
        )
    assert parting >= 12


@pytest.mark.slow
def test_compute_often_hides_a_part_of_what_is_sent():
    """The best plan is then neither that of the constant share alone nor that of hiding nothing."""
    between = 0
    for problem in (random_problem(Random(seed), "plain") for seed in range(150)):
        if problem["training"].get("hiding"):
            shares = [problem["training"]["exposed"], 1.0]
            fixed = [problem | {"training": problem["training"] | {"hiding": False, "exposed": e}} for e in shares]
            found, least, most = (solve(each).batch_time for each in (problem, *fixed))
            between += found is not None and least * (1 + 1e-9) < found < most * (1 - 1e-9)
    assert between >= 5


@pytest.mark.slow
def test_mixing_often_pays():
    drawn = [draw(seed, "mixed") for seed in range(150)]
    plans = [(each.problem, each.answer.plan["stages"]) for each in drawn if each.answer.plan is not None]
    mixing = [(problem, stages) for problem, stages in plans if len({stage["candidate"] for stage in stages}) > 1]
    assert len(mixing) > len(plans) / 10
    assert any(has_gap(problem, {"stages": stages}) for problem, stages in mixing)
    assert any(len(edges(problem)) > len(problem["profile"]["layers"]) - 1 for problem, _ in mixing)


@pytest.mark.slow
def test_dealt_chunks_often_pay_and_so_do_gaps_between_them():
    drawn = [draw(seed, "chunked") for seed in range(450)]
    plans = [(each.problem, each.answer.plan) for each in drawn if each.answer.plan is not None]
    dealt = [(problem, plan) for problem, plan in plans if plan["chunks"] > 1]
    assert len(dealt) > len(plans) / 6
    assert {2, 3, 4} <= {plan["chunks"] for _, plan in dealt}
    assert {2, 3, 4} <= {len(plan["stages"]) for _, plan in dealt}
    assert any(has_gap(problem, plan) for problem, plan in dealt)
    assert any("embedding" in problem["profile"]["layers"] for problem, _ in dealt)
    assert any(len({stage["recompute"] for stage in plan["stages"]}) > 1 for _, plan in dealt)
    assert {"zero-bubble", "zero-bubble-h2"} <= {plan["schedule"] for _, plan in plans}


@pytest.mark.slow
def test_the_best_plans_are_of_every_kind(problems):
    answers = [solve(problem) for problem in problems]
    plans = [answer.plan for answer in answers if answer.plan is not None]
    stages = [plan["stages"] for plan in plans]
    assert 0.5 < len(plans) / len(answers) < 0.95
    assert any(answer.reachable_memory for answer in answers)
    assert {1, 2, 3, 4} <= set(map(len, stages))
    assert sum(len(s) > 1 for s in stages) > len(stages) / 3
    assert {plan["rank_order"] for plan in plans} == {"pp-inner", "dp-inner"}
    assert {plan["schedule"] for plan in plans} == {"nest", "1f1b", "gpipe"}
    assert {stage["zero"] for s in stages for stage in s} == {0, 1, 2, 3}
    assert any(len({stage["zero"] for stage in s}) > 1 for s in stages)
    assert any(len({stage["recompute"] for stage in s}) > 1 for s in stages)
    assert any(plan["replicas"] > 1 and len(plan["stages"]) > 1 for plan in plans)
    assert any(has_gap(problem, answer.plan) for problem, answer in zip(problems, answers, strict=True))
