"""The generator reaches every corner it is meant to reach."""

from itertools import pairwise
from random import Random

import pytest

from tests.agreement.problems import random_problem
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
