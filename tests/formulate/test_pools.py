"""`cluster.pools` as written and in numbers, and what is refused of it."""

from collections.abc import Callable
from typing import Any

import pytest

from nest.errors import InputError
from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Link
from nest.io import structure
from nest.spec import Problem
from tests.pooled_problems import two_pools


def test_each_pool_is_a_cluster_of_its_own() -> None:
    instance = build_instance(structure(two_pools(), Problem), registry())
    assert instance.pools is not None
    assert [(each.name, each.cluster.size) for each in instance.pools.members] == [("fast", 4), ("slow", 6)]
    assert instance.pools.link(0, 1) == instance.pools.link(1, 0) == Link(10.0, 0.05)
    assert [instance.pool_of(index) for index in range(4)] == [0, 0, 1, 1]
    assert instance.at(3).cluster == instance.pools.members[1].cluster
    assert instance.size == 10
    alone = instance.alone(1)
    assert alone is not None
    assert ([each.name for each in alone[0].candidates], alone[1]) == (["slow1", "slow2"], (2, 3))
    assert alone[0].cluster.reserve == 2.0


def test_a_link_of_the_catalogue_joins_pools() -> None:
    problem = two_pools()
    problem["cluster"]["between"] = [{"pools": ["fast", "slow"], "link": "infiniband-ndr", "bandwidth": "50 GB/s"}]
    pools = build_instance(structure(problem, Problem), registry()).pools
    assert pools is not None
    link = pools.link(0, 1)
    assert link is not None
    assert 0 < link.bandwidth <= 50e9
    assert link.latency > 0


def _set(*steps: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(problem: dict[str, Any]) -> None:
        place: Any = problem
        for step in steps[:-1]:
            place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
        place[steps[-1]] = value

    return change


POOLS = ("cluster", "pools")
BETWEEN = ("cluster", "between")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_set(*POOLS, 1, "name", value="fast"), r"cluster\.pools\[1\]\.name is 'fast', the name of an earlier pool"),
        (_set("cluster", "memory", value=3.0), r"cluster\.memory and pools exclude each other"),
        (
            _set(*BETWEEN, 0, "pools", value=["fast", "slwo"]),
            r"cluster\.between\[0\]\.pools\[1\] is 'slwo', but no pool has this name; did you mean slow",
        ),
        (_set(*BETWEEN, 0, "pools", value=["fast", "fast"]), r"between\[0\]\.pools must name two different pools"),
        (_set("search", "mixed", value=True), r"search\.mixed does not support cluster\.pools"),
        (_set("search", "tensors", value="direct"), r"search\.tensors cannot be direct"),
        (_set("profile", "candidates", 0, "pool", value=None), r"candidates\[0\]\.pool is missing; it is one of fast"),
        (_set("profile", "candidates", 0, "pool", value="fsat"), r"pool is 'fsat', but no pool has this name"),
        (_set("profile", "candidates", 0, "width", value=8), r"width is 8, but pool 'fast' has 4 devices"),
        (
            _set("training", "schedule", value="dualpipe"),
            r"training\.schedule: cluster.pools does not support several chunks per stage \(dualpipe\)",
        ),
        (
            _set("training", "schedule", value=["1f1b", "zb-v"]),
            r"training\.schedule: cluster.pools does not support several chunks per stage \(zb-v\)",
        ),
        (_set(*POOLS, 0, "reserve", value=70.0), r"cluster\.pools\[0\]\.reserve"),
        (_set(*POOLS, 0, "memory", value=None), r"cluster\.pools\[0\]\.device is missing"),
        (_set(*POOLS, 0, "levels", 1, "link", value="nvlnk"), r"cluster\.pools\[0\]\.levels\[1\]\.link"),
        (_set(*BETWEEN, 0, "bandwidth", value=None), r"cluster\.between\[0\]\.bandwidth is missing"),
        (_set(*BETWEEN, 0, "link", value="nvlnk"), r"cluster\.between\[0\]\.link"),
    ],
)
def test_mistakes_name_their_place(change: Callable[[dict[str, Any]], None], sentence: str) -> None:
    problem = two_pools()
    change(problem)
    with pytest.raises(InputError, match=sentence):
        build_instance(structure(problem, Problem), registry())


def test_a_candidate_of_a_pool_needs_pools() -> None:
    problem = two_pools()
    problem["cluster"] = {"memory": 60.0, "levels": problem["cluster"]["pools"][0]["levels"]}
    with pytest.raises(InputError, match=r"candidates\[0\]\.pool is 'fast', but the cluster has no pools"):
        structure(problem, Problem)
