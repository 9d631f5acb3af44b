"""Graphs with too many cuts for the dynamic program: CP-SAT finds the same optimum, or says how far it may be."""

import re
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy
import pytest
from attrs import evolve

import nest
from nest.formulate.problem import formulated
from nest.hooks.registry import registry
from nest.instance import Instance, LayerGraph, Result
from nest.plan.evaluate import evaluate
from nest.plan.legality import permission_violations, structure_violations
from nest.report.text.layout import Screen
from nest.report.text.summary import summary
from nest.solve import dp
from nest.solve.any_graph import branched
from nest.solve.dp import downsets
from nest.solve.effort import Deadline
from nest.solve.solver import solve_on_levels as solve
from nest.tolerances import AGREEMENT, PROOF
from nest_cpsat import graph_search, listing
from nest_cpsat.graph_search import solve as search
from tests import small_instances
from tests.agreement.draws import draw
from tests.measured import profile
from tests.seeds import few, seeds

KNOWN = registry()

NUMBERS = re.compile(r"is ([0-9.e+]+) bytes")
"""What a diagnosis says is needed at least."""

PATHS = ("as it is", "no plan known", "a bad plan known", "no lists")
"""What the search is spared: a first plan, a good one, lists of cuts."""


def instance_of(problem: dict[str, Any]) -> Instance:
    return formulated(problem, KNOWN)[1]


def found(instance: Instance, path: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    """The answer of the search without some of its help."""
    if path == "as it is":
        return branched(instance, Deadline())
    if path == "no lists":
        monkeypatch.setattr(listing, "MOST_WORK", -1)

    def without_help(instance: Instance, known: Any, *rest: Any) -> Result:
        worse = None if known is None or path == "no plan known" else (known[0], known[1] * 1.5)
        return search(instance, worse, *rest)

    monkeypatch.setattr(graph_search, "solve", without_help)
    return branched(instance, Deadline())


def agrees(instance: Instance, result: Result, *, proved: bool) -> None:
    """The answer is that of the dynamic program, as far as is proved, and its plan is one."""
    exact = dp.solve(instance)
    if exact.batch_time is None:
        assert result.status == "infeasible"
        assert NUMBERS.findall(result.diagnosis or "") == NUMBERS.findall(exact.diagnosis or "")
        return
    assert result.solution is not None
    assert result.batch_time is not None
    assert result.lower_bound is not None
    priced = evaluate(instance, result.solution)
    assert priced.fits
    assert not structure_violations(instance, result.solution)
    assert not permission_violations(instance, result.solution)
    assert priced.batch_time == pytest.approx(result.batch_time, rel=AGREEMENT)
    assert result.lower_bound <= exact.batch_time * (1 + AGREEMENT)
    assert exact.batch_time <= result.batch_time * (1 + AGREEMENT)
    if proved or result.status == "optimal":
        assert result.status == "optimal"
        assert result.batch_time <= exact.batch_time * (1 + 2 * PROOF)
        assert result.lower_bound >= result.batch_time * (1 - 2 * PROOF)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", few(["plain", "mixed", "chunked", "sharded"], "plain"))
@pytest.mark.parametrize("seed", seeds(2, 60, now=(1,)))
def test_random_problems_have_the_optimum_of_the_dynamic_program(
    seed: int, kind: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = instance_of(draw(seed, kind).problem)
    agrees(instance, found(instance, path, monkeypatch), proved=path != "no lists")


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked"])
@pytest.mark.parametrize("seed", seeds(1, 60))
def test_stages_that_recompute_their_first_layers_have_it_too(seed: int, kind: str) -> None:
    instance = instance_of(draw(seed, kind, parts=True).problem)
    agrees(instance, branched(instance, Deadline()), proved=True)


def towers(count: int, length: int, seed: int = 0, *, devices: int = 6, traffic: float = 0.1) -> Instance:
    """Parallel chains between a source and a sink, with random costs, in a pipeline over as many devices."""
    draw = Random(seed)
    layers = count * length + 2
    chains = [[0, *range(1 + tower * length, 1 + (tower + 1) * length), layers - 1] for tower in range(count)]
    tensors = [(0, tuple(chain[1] for chain in chains))]
    tensors += [(one, (other,)) for chain in chains for one, other in pairwise(chain[1:])]
    graph = LayerGraph(tuple(f"l{layer}" for layer in range(layers)), tuple(tensors))
    used = evolve(
        small_instances.candidate(layers, tensors=len(tensors), seed=seed),
        forward=numpy.array([draw.uniform(0.5, 2.0) for _ in range(layers)]),
        # Bytes over a link of 100 a second.
        tensor_bytes=numpy.array([draw.uniform(0.5, 2.0) * traffic * 100 for _ in tensors]),
    )
    return small_instances.instance(
        [used],
        graph=graph,
        machines=small_instances.cluster((devices,)),
        constraints=["dp == 1"],
        global_batch=64,
        rank_orders=("pp-inner",),
        zero=(0,),
    )


def test_small_towers_have_the_optimum_of_the_dynamic_program() -> None:
    for seed in range(3):
        instance = towers(4, 4, seed, traffic=(0.02, 0.1, 0.5)[seed])
        agrees(instance, branched(instance, Deadline()), proved=True)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("count", "length"), [(5, 8), *(pytest.param(*each, marks=pytest.mark.slow) for each in [(4, 10), (3, 24)])]
)
def test_towers_are_proved(count: int, length: int) -> None:
    instance = towers(count, length)
    result = branched(instance, Deadline())
    assert result.status == "optimal"
    assert result.solution is not None
    assert evaluate(instance, result.solution).batch_time == pytest.approx(result.batch_time, rel=AGREEMENT)
    # The dynamic program, which looks for nothing slower, does not know better along any order it is given.
    assert result.lower_bound == pytest.approx(result.batch_time, rel=2 * PROOF)


@pytest.mark.longer
def test_inception_is_proved(shared: Path) -> None:
    problem = shared / "dag" / "layergraphs__inceptionv3_inference.json"
    instance = formulated(problem, KNOWN)[1]
    with pytest.raises(dp.TooManyCuts):
        dp.solve(instance)
    result = solve(instance)
    assert result.status == "optimal"
    assert result.solution is not None
    assert evaluate(instance, result.solution).slowest == pytest.approx(52.2016, abs=1e-4)


def test_what_is_not_proved_in_time_says_so() -> None:
    instance = towers(4, 4)
    late = Deadline(1e-3, patience=60.0)
    while not late.passed:
        pass
    result = branched(instance, late)
    best = dp.solve(instance).batch_time
    assert result.status == "feasible"
    assert result.batch_time is not None
    assert best is not None
    assert (result.lower_bound or 0.0) <= best <= result.batch_time * (1 + AGREEMENT)


def small_problem() -> dict[str, Any]:
    """Three branches of two layers, and two layers behind them: 10 layers, more than 30 cuts."""
    edges = [[0, 1], [1, 2], [2, 7], [0, 3], [3, 4], [4, 7], [0, 5], [5, 6], [6, 7], [7, 8], [8, 9]]
    return {
        "nest": 1,
        "cluster": {"memory": 1e9, "levels": [{"fanout": 3, "bandwidth": 1.0, "latency": 0.0}]},
        "training": {"global_batch": 8},
        "search": {"zero": [0], "rank_order": ["pp-inner"]},
        "constraints": ["dp == 1"],
        "profile": profile([float(1 + layer % 3) for layer in range(10)], [0.0] * 10, edges=edges, sent=0.1),
    }


@pytest.mark.parametrize("limit", [20_000, 12])
def test_plans_of_branched_graphs_hold_and_are_proved_again(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downsets, "LIMIT", limit)
    plan = nest.solve(small_problem(), verify=True)
    assert plan.status == "optimal"
    assert ("questions" in plan.statistics) == (limit == 12)
    assert plan.verification is not None
    assert plan.verification["status"] == "proved"
    assert nest.check(plan).ok
    shortfall = plan.batch_time - plan.lower_bound
    assert 0 <= shortfall <= 2 * PROOF * plan.batch_time
    assert (shortfall > 0) == (limit == 12)


def test_a_gap_says_what_coarser_cuts_would_prove(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downsets, "LIMIT", 12)
    monkeypatch.setattr(graph_search, "WHOLE_EFFORT", -1.0)
    plan = nest.solve(small_problem())
    assert plan.status == "feasible"
    coarser = nest.solve(small_problem(), changes={"search": {"granularity": "block"}})
    assert coarser.status == "optimal"
    assert plan.statistics["block_batch_time"] == pytest.approx(coarser.batch_time)
    assert "search.granularity: block" in summary(plan, Screen(200))
