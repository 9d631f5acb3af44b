"""Whatever value of a plan file is changed, `nest check` notices, but for what no check without a search can know."""

import copy
import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

import nest
from nest.errors import InputError
from tests.plan.test_check import PROBLEM
from tests.pooled_problems import two_pools
from tests.seeds import few
from tests.test_any_problem import DESCRIBED
from tests.test_first_plan import MIXING
from tests.test_first_plan import problem as tight

Steps = tuple[str | int, ...]

UNCHECKED = {
    r"problem\b.*": "what was asked, from which everything else follows; most changes of it are noticed, too",
    r"statistics\b.*": "what the search did",
    r"plugins\b.*": "what took part where the plan was made; another version may say the same",
    r"verification(\.free)?\.(solver|version|seed|workers|models|cases|pruned|seconds|error|tolerance|reason)": (
        "how the proof was found"
    ),
    r"placement\.method": "how the placement was found",
    r"((runner_up|fastest|safer|simpler)\.decisions\.)?stages\.\d+\.(zero|recompute|devices\.0)": (
        "a decision: where another costs the same, the plan holds with that"
    ),
    r"diagnosis": "what a search that found no plan met",
    r"runs_on\.\d+": "exporters of plug-ins may be installed where the plan was made alone",
}
"""Values no check without a search can know, with the reason; docs/reference/plan.md says so."""

SOLVED = {**PROBLEM, "constraints": ["pp >= 2"]}
MODEL = {**DESCRIBED, "strategies": {"tp": [1, 2], "cp": [1], "ep": [1, 2]}, "constraints": ["pp >= 2"], "fixed": {}}
TORUS = {
    **PROBLEM,
    "cluster": {"memory": 60.0, "topology": {"torus": {"shape": [2, 3], "bandwidth": 10.0, "latency": 0.01}}},
}
ONE = PROBLEM["profile"]["candidates"][0]
HALF = {name: [value / 2 for value in ONE[name]] for name in ("forward", "backward")}
TWO = {**ONE, **HALF, "name": "two", "width": 2, "forward": [0.9, *HALF["forward"][1:]]}
MIXED: dict[str, Any] = {
    **PROBLEM,
    "profile": {**PROBLEM["profile"], "candidates": [ONE, TWO]},
    "search": {"mixed": True},
    "constraints": ["pp == 2", "devices == 3"],
}
"""Its only plans have a stage of each candidate."""
CHUNKED = {**SOLVED, "training": {**PROBLEM["training"], "schedule": "interleaved"}}
PLANS = {
    "proved": lambda: nest.solve(SOLVED, verify="free"),
    "decided": lambda: nest.evaluate(
        {**PROBLEM, "constraints": ["pp <= 2"], "search": {"zero": [0]}, "fixed": {"pp": 4, "zero": 1}}
    ),
    "of a model": lambda: nest.solve(MODEL),
    "on a torus": lambda: nest.solve(TORUS),
    "with a safer one": lambda: nest.solve(tight(3.0)),
    "near the fastest": lambda: nest.solve({**MIXING, "search": {"within": 0.01}}),
    "mixed": lambda: nest.solve(MIXED),
    "of chunks": lambda: nest.solve(CHUNKED),
    "on pools": lambda: nest.solve(two_pools()),
    "infeasible": lambda: nest.solve({**PROBLEM, "cluster": {**PROBLEM["cluster"], "memory": 5.0}}),
}


@cache
def plan_of(name: str) -> dict[str, Any]:
    return PLANS[name]().to_dict()


def leaves(value: Any, steps: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*steps, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*steps, index))
    elif value is not None:
        yield steps, value


def others(value: Any) -> list[Any]:
    """Values a little and far from `value`."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, value * 7 + 3]
    if isinstance(value, float):
        return [value * (1 + 1e-6), value * 0.5, -value - 1.0] if value else [1e3, -1e3]
    return [value + "x", value[:-1], value.upper()]


def changed(plan: dict[str, Any], steps: Steps, value: Any) -> dict[str, Any]:
    found = copy.deepcopy(plan)
    target: Any = found
    for step in steps[:-1]:
        target = target[step]
    target[steps[-1]] = value
    return found


def noticed(plan: dict[str, Any]) -> bool:
    try:
        return not nest.check(plan).ok
    except InputError:
        return True


def checked(plan: dict[str, Any]) -> list[tuple[Steps, Any]]:
    found = []
    for steps, value in leaves(plan):
        place = ".".join(map(str, steps))
        if not any(re.fullmatch(pattern, place) for pattern in UNCHECKED):
            found += [(steps, other) for other in others(value) if other != value]
    return found


def missed(plan: dict[str, Any], most: int | None) -> list[tuple[Steps, Any]]:
    assert nest.check(plan).ok
    values = checked(plan)
    if most is not None:
        values = random.Random(17).sample(values, min(most, len(values)))
    return [(steps, other) for steps, other in values if not noticed(changed(plan, steps, other))]


@pytest.mark.parametrize("name", few(sorted(PLANS), "decided", "proved"))
def test_what_is_changed_is_noticed(name: str) -> None:
    assert missed(plan_of(name), 25) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PLANS))
def test_whatever_is_changed_is_noticed(name: str) -> None:
    assert missed(plan_of(name), None) == []


@pytest.mark.longer
def test_the_plans_say_all_there_is_to_say() -> None:
    said = {key for name in PLANS for key, value in plan_of(name).items() if value not in (None, [], {})}
    assert said == set(plan_of("proved")) - {"zero_degree", "space"}


def test_a_runner_up_without_decisions_is_noticed() -> None:
    plan = copy.deepcopy(plan_of("proved"))
    del plan["runner_up"]["decisions"]
    assert "has no decisions" in nest.check(plan).disagreements[0]
