"""A layer that cannot run in a recompute mode (`null` in a profile) is one that needs more than any device has."""

from functools import partial

import numpy
import pytest
from attrs import evolve

from nest.instance import Candidate, Instance, Result, Solution
from nest.plan.evaluate import evaluate
from nest.plan.legality import structure_violations
from nest.solve.dp import solve
from nest_cpsat import Price, verify
from tests.small_instances import candidate, cluster, instance

LAYERS = 6
TOO_LARGE = 1e12
"""Bytes that fit no device of `MACHINES`."""
MACHINES = cluster((2, 2), memory=200.0)


def unable(used: Candidate, layers: dict[str, list[int]], size: float) -> Candidate:
    """A candidate of which some layers keep `size` bytes of the first micro-batch, by mode."""
    modes = []
    for mode in used.recompute:
        first = mode.first.copy()
        first[layers.get(mode.name, [])] = size
        modes.append(evolve(mode, first=first))
    return evolve(used, recompute=tuple(modes))


def both(layers: dict[str, list[int]], kind: str, *, beside: bool = True) -> tuple[Instance, Instance]:
    """The same problem with layers that cannot run, and with ones that are too large; `beside` a wider candidate."""
    found = []
    for size in (numpy.inf, TOO_LARGE):
        narrow = unable(candidate(LAYERS), layers, size)
        wide = [candidate(LAYERS, name="wide", width=2, seed=1, scale=0.7)] if beside else []
        space: dict[str, object] = {"mixed": kind == "mixed"}
        if kind == "interleaved":
            space["blocks"] = tuple((layer,) for layer in range(LAYERS))
        schedules = ["interleaved" if kind == "interleaved" else "1f1b"]
        found.append(instance([narrow, *wide], machines=MACHINES, schedules=schedules, **space))
    return found[0], found[1]


def priced(problem: Instance, solution: Solution) -> Price:
    found = evaluate(problem, solution)
    return Price(found.batch_time, found.overfull)


def decided(result: Result) -> object:
    return result.status, result.solution, result.batch_time


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["plain", "mixed", "interleaved"])
@pytest.mark.parametrize(
    "layers", [{"none": [5]}, {"none": [0, 3], "full": [1]}, {"none": [2], "full": [2]}, {"none": [*range(LAYERS)]}]
)
def test_as_if_it_were_too_large(kind: str, layers: dict[str, list[int]]) -> None:
    endless, large = both(layers, kind)
    if kind == "interleaved":
        chunked = endless.space.schedules[0].with_chunks(3)  # type: ignore[attr-defined]
        endless, large = (evolve(each, space=evolve(each.space, schedules=(chunked,))) for each in (endless, large))
    result = solve(endless)
    assert result.solution is not None
    assert decided(result) == decided(solve(large))
    assert structure_violations(endless, result.solution) == []
    assert result.batch_time is not None
    assert verify(endless, result.batch_time, partial(priced, endless)).status == "proved"


@pytest.mark.parametrize("kind", ["plain", "mixed", "interleaved"])
def test_without_a_mode_to_run_in_the_layer_is_named(kind: str) -> None:
    result = solve(both({"none": [3], "full": [3]}, kind, beside=False)[0])
    assert result.status == "infeasible"
    assert "Layer 'l3' runs in none" in str(result.diagnosis)


def test_without_a_mode_for_all_of_a_stage_that_is_said() -> None:
    apart = unable(candidate(LAYERS), {"none": [3], "full": [4]}, numpy.inf)
    result = solve(instance([apart], machines=MACHINES, constraints=['same_stage("l3", "l4")']))
    assert result.status == "infeasible"
    assert "no recompute mode in common" in str(result.diagnosis)


def test_a_plan_that_runs_it_all_the_same_is_none() -> None:
    problem = instance([candidate(LAYERS)], machines=MACHINES)
    solution = solve(problem).solution
    assert solution is not None
    mode, layer = solution.stages[0].recompute, solution.stages[0].layers[0]
    spoilt = evolve(problem, candidates=(unable(problem.candidates[0], {mode: [layer]}, numpy.inf),))
    (told,) = structure_violations(spoilt, solution)
    assert f"layer 'l{layer}' cannot run with recompute mode {mode!r}" in told
