"""Models that are priced once for problems that differ in nothing that prices a layer."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from attrs import evolve
from numpy import array_equal

from nest.formulate import options
from nest.formulate.cluster import build_cluster
from nest.formulate.instance import Wanted, build_instance, formulate, read_options
from nest.formulate.priced_models import PricedModels, pricing_key
from nest.hooks import hook
from nest.hooks.registry import Registry, registry
from nest.instance import Array, Candidate, Instance
from nest.spec import LevelSpec, MemoryOverheads, Overlap, Problem, Search
from nest.strategies.tp import TensorParallelism
from tests.bare_devices import bare
from tests.formulate.conftest import EXPERTS, NODES
from tests.seeds import few

Build = Callable[..., Problem]

SLOWER = (
    LevelSpec(fanout=8, bandwidth=300e9, latency=1e-6, name="node"),  # type: ignore[arg-type]
    LevelSpec(fanout=2, bandwidth=20e9, latency=5e-6, name="fabric"),  # type: ignore[arg-type]
)

SAME: list[Mapping[str, Any]] = [
    {"cluster": {"memory": 40e9}},
    {"cluster": {"reserve": 1e9}},
    {"training": {"global_batch": 64}},
    {"training": {"schedule": ("1f1b", "zero-bubble")}},
    {"training": {"memory_risk": 0.8}},
    {"constraints": ("tp <= 2",)},
]
OTHER: list[Mapping[str, Any]] = [
    {"cluster": {"levels": (SLOWER[0], evolve(SLOWER[1], fanout=4))}},
    {"training": {"precision": "fp16"}},
    {"training": {"micro_batch": (2,)}},
    {"training": {"trainable": ("head",)}},
    {"strategies": {"tp": (1, 2)}},
    {"fixed": {"tp": 2}},
]


def same(one: Instance, other: Instance) -> bool:
    """Whether two instances are alike in every number."""
    return (one.cluster, one.graph, one.space) == (other.cluster, other.graph, other.space) and all(
        repr(mine) == repr(its)
        and (mine.pool, mine.gathered, mine.busy is None) == (its.pool, its.gathered, its.busy is None)
        and all(map(array_equal, numbers(mine), numbers(its)))
        for mine, its in zip(one.candidates, other.candidates, strict=True)
    )


def numbers(candidate: Candidate) -> list[Array]:
    """Every array of a candidate."""
    rest = (candidate.busy, candidate.collectives, candidate.weight_gradients, *(m.busy for m in candidate.recompute))
    return [array for _, array in candidate.arrays()] + [array for array in rest if array is not None]


@pytest.mark.longer
@pytest.mark.parametrize("changed", [*SAME, *OTHER], ids=str)
def test_instances_are_as_if_priced_alone(problem: Build, changed: Mapping[str, Any]) -> None:
    known, priced = registry(), PricedModels()
    first = build_instance(problem(), known, known=priced)
    asked = problem(**changed)
    found = build_instance(asked, known, known=priced)
    assert same(found, build_instance(asked, known))
    shared = all(mine is its for mine, its in zip(first.candidates, found.candidates, strict=False))
    assert shared == (changed in SAME)


@pytest.mark.parametrize("changed", [{"training": {"micro_batch": (1, 2)}}, {"strategies": {"tp": (1, 2)}}], ids=str)
def test_of_other_strategies_blocks_in_common_stay_priced(problem: Build, changed: Mapping[str, Any]) -> None:
    known, priced = registry(), PricedModels()
    every = [build_instance(each, known, known=priced) for each in (problem(), problem(**changed))]
    one, other = ({each.name: each for each in instance.candidates} for instance in every)
    common = one.keys() & other.keys()
    assert common
    assert all(one[name] is other[name] for name in common)


PAIRS = (evolve(NODES[0], fanout=2), evolve(NODES[1], fanout=4))

NETWORKS: list[tuple[Mapping[str, Any], int]] = [
    ({"levels": (PAIRS[0], evolve(PAIRS[1], bandwidth=20e9))}, 1),
    ({"levels": (evolve(PAIRS[0], bandwidth=100e9), PAIRS[1])}, 0),
    ({"levels": (evolve(PAIRS[0], latency=1e-5), evolve(PAIRS[1], bandwidth=20e9))}, 0),
    ({"device": evolve(bare("a100-sxm-80g"), memory_bandwidth=1e12)}, -1),
]
"""What is otherwise of the cluster, and the innermost level that costs something else; -1: nothing costs the same."""


BESIDE: dict[str, Mapping[str, Any]] = {
    "layers": {},
    "operators": {"search": Search(granularity="operator")},
    "experts": {"model": EXPERTS, "strategies": {"ep": (1, 2, 4), "tp": (1, 2)}},
    "overlap": {"training": {"selective": ("attention",), "overlap": Overlap(tensor=True, experts=True)}},
}
CHANGED = [
    pytest.param(*network, rest, id=f"{name}-{number}", marks=[pytest.mark.slow] if number and name != "layers" else [])
    for number, network in enumerate(NETWORKS)
    for name, rest in BESIDE.items()
]
"""By default every network is tried with layers, and all else with the first."""


@pytest.mark.parametrize(("changed", "level", "rest"), CHANGED)
def test_another_network_prices_what_its_levels_change(
    problem: Build, changed: Mapping[str, Any], level: int, rest: Mapping[str, Any]
) -> None:
    """As if priced alone; and blocks that no changed level joins are not priced again."""
    known, priced = registry(), PricedModels()
    first = build_instance(problem(cluster={"levels": PAIRS}, **rest), known, known=priced)
    asked = problem(cluster={"levels": PAIRS, **changed}, **rest)
    found = build_instance(asked, known, known=priced)
    assert same(found, build_instance(asked, known))
    capacities = (1, *first.cluster.capacities)
    for mine, its in zip(first.candidates, found.candidates, strict=True):
        assert mine is its or level == -1 or mine.width > capacities[level]
        assert mine is not its or level >= 0
    kept = [mine is its for mine, its in zip(first.candidates, found.candidates, strict=True)]
    assert any(kept) == (level >= 0)
    assert not all(kept)


@pytest.mark.longer
def test_of_as_many_devices_no_block_is_sharded_again(problem: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    known, priced = registry(), PricedModels()
    for fanout in (4, 8, 16):  # More devices have more blocks.
        build_instance(problem(cluster={"levels": (PAIRS[0], evolve(PAIRS[1], fanout=fanout))}), known, known=priced)

    def refused(*_: Any) -> None:
        raise AssertionError("sharded again")

    asked = problem(cluster={"levels": (PAIRS[0], evolve(PAIRS[1], fanout=4, bandwidth=20e9))})
    with monkeypatch.context() as patched:
        patched.setattr(options, "ShardedGraphs", refused)
        found = build_instance(asked, known, known=priced)
    assert same(found, build_instance(asked, known))


@pytest.mark.longer
def test_of_few_candidates_those_priced_stay_where_more_are_asked_for(problem: Build) -> None:
    known, priced = registry(), PricedModels()
    every = [each.name for each in build_instance(problem(), known, known=priced).candidates]
    asked = problem(cluster={"levels": SLOWER})
    few, more = (
        {each.name: each for each in build_instance(asked, known, Wanted(among=names), priced).candidates}
        for names in (every[-2:], every[-5:])
    )
    assert (list(few), list(more)) == (every[-2:], every[-5:])
    assert all(more[name] is few[name] for name in few)
    alone = {each.name: each for each in build_instance(asked, known).candidates}
    assert all(
        array_equal(*each) for name in more for each in zip(numbers(more[name]), numbers(alone[name]), strict=True)
    )


H100 = bare("h100-sxm")
H100 = evolve(H100, calibration=evolve(H100.calibration, host_launch=0.0))  # Of small layers it would be all there is.
DEVICES = {
    "peak": evolve(H100, peak=evolve(H100.peak, fp8=H100.peak.fp8 and 2 * H100.peak.fp8, bf16=1e15)),
    "no narrow format": evolve(H100, peak=evolve(H100.peak, fp8=None)),
    "engines": evolve(H100, engines=("matrix", "vector", "communication")),
    "host": evolve(H100, calibration=evolve(H100.calibration, host_launch=1e-4)),
    "exposed": evolve(H100, calibration=evolve(H100.calibration, tensor_exposed=1.0)),
    "bandwidth": evolve(H100, memory_bandwidth=1e12),
    "overheads": evolve(H100, memory_overheads=MemoryOverheads(context=1e9, fragmentation=0.1)),
}


@pytest.mark.parametrize("rest", [{}, {"search": Search(granularity="operator")}], ids=["layers", "operators"])
@pytest.mark.parametrize("name", few(DEVICES, "exposed", "host"))
def test_another_device_prices_as_if_alone(problem: Build, name: str, rest: Mapping[str, Any]) -> None:
    known, priced = registry(), PricedModels()
    training = {"precision": "fp8", "saved_inputs": "narrow", "overlap": Overlap(tensor=True)}
    first, asked = (problem(training=training, cluster={"device": each}, **rest) for each in (H100, DEVICES[name]))
    build_instance(first, known, known=priced)
    assert same(build_instance(asked, known, known=priced), build_instance(asked, known))


SIZES = ((2, 16), (2, 6), (2, 1), (4, 4), (4, 2), (1, 8))
RESTS: dict[str, Mapping[str, Any]] = {
    "layers": {},
    "operators": {"search": Search(granularity="operator")},
    "highest": {"strategies": {"tp": (True,)}},
    "experts": {"model": EXPERTS, "strategies": {"ep": (1, 2, 4), "tp": (1, 2), "cp": (1,)}},
    "dispatch": {
        "model": EXPERTS,
        "strategies": {"cp": (1,)},
        "training": {"overlap": Overlap(tensor=True, experts=True), "dispatch": "per-node"},
    },
}
ONCE = {"layers": (2, 16), "operators": (4, 4), "highest": (1, 8), "experts": (4, 2), "dispatch": (2, 6)}
"""The numbers of devices that the default run takes of what is priced at length."""

RESIZED = [
    pytest.param(size, rest, id=f"{name}-{size}", marks=[pytest.mark.slow] if ONCE.get(name, size) != size else [])
    for size in SIZES
    for name, rest in RESTS.items()
]


@pytest.mark.parametrize(("fanouts", "rest"), RESIZED)
def test_of_another_number_of_devices_blocks_are_kept(
    problem: Build, fanouts: tuple[int, int], rest: Mapping[str, Any]
) -> None:
    """As if priced alone, from fewer and from more; and what lies as before, with room for as many, is not priced."""
    known, priced = registry(), PricedModels()
    levels = tuple(evolve(level, fanout=fanout) for level, fanout in zip(PAIRS, fanouts, strict=True))
    for cluster in ({"levels": PAIRS}, {"levels": levels}, {"levels": PAIRS, **NETWORKS[-1][0]}, {"levels": levels}):
        asked = problem(cluster=cluster, **rest)
        assert same(build_instance(asked, known, known=priced), build_instance(asked, known))
    priced = PricedModels()
    every = [build_instance(problem(cluster={"levels": each}, **rest), known, known=priced) for each in (PAIRS, levels)]
    one, other = ({each.name: each for each in instance.candidates} for instance in every)
    before, after = (instance.cluster for instance in every)
    for name in one.keys() & other.keys():
        width = one[name].width
        alike = before.parts(width) == after.parts(width)
        alike &= all((before.size // width >= rooms) == (after.size // width >= rooms) for rooms in (2, 4))
        assert (one[name] is other[name]) == alike


@pytest.mark.longer
@pytest.mark.parametrize("overlap", [Overlap(), Overlap(tensor=True, experts=True)], ids=["serial", "overlap"])
def test_computing_alone_is_what_a_free_network_leaves(problem: Build, overlap: Overlap) -> None:
    slow, free = (tuple(evolve(each, bandwidth=rate, latency=0.0) for each in NODES) for rate in (1e8, 1e24))
    rest = {
        "model": EXPERTS,
        "strategies": {"ep": (1, 2), "tp": (1, 2, 4)},
        "training": {"overlap": overlap, "graphs": "iteration"},
    }
    _, formulation = formulate(problem(cluster={"levels": slow}, **rest), registry())
    there = build_instance(problem(cluster={"levels": free}, **rest), registry())
    found = formulation.computing()
    assert any(
        (mine.collectives > mine.forward).any() for mine in formulation.candidates if mine.collectives is not None
    )
    for mine, other in zip(found, there.candidates, strict=True):
        assert mine.forward == pytest.approx(other.forward, rel=1e-9)
        assert mine.backward == pytest.approx(other.backward, rel=1e-9)
        assert mine.weight_gradients == pytest.approx(other.weight_gradients, rel=1e-9)
        assert not mine.busy.any()


def test_what_plug_ins_read_is_not_guessed(problem: Build) -> None:
    """A strategy from elsewhere may look at the memory of the cluster."""

    class Bold(TensorParallelism):
        name = "bold"

    class PlugIn:
        @hook
        def nest_strategies(self) -> list[Any]:
            return [Bold()]

    def keys(known: Registry) -> list[object]:
        every = [problem(cluster={"memory": memory}) for memory in (40e9, 20e9)]
        clusters = [build_cluster(each.cluster, known) for each in every]
        return [pricing_key(read_options(each, known), known, *its) for each, its in zip(every, clusters, strict=True)]

    for known, alike in ((registry(), True), (Registry([PlugIn()]), False)):
        one, other = keys(known)
        assert (one == other) == alike


def test_few_are_kept(problem: Build) -> None:
    known, priced, made = registry(), PricedModels(), list[tuple[Candidate, ...]]()
    for fanout in (1, 2, 3, 4, 5, 1):
        level = evolve(SLOWER[1], fanout=fanout)
        made.append(build_instance(problem(cluster={"levels": (SLOWER[0], level)}), known, known=priced).candidates)
    assert made[0] is not made[-1]
