"""What bounds plans whose stages recompute some layers: of pools, and of graphs without the cuts around idle layers."""

from random import Random
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

import nest
from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import StageDecision, stage_mode
from nest.io import structure
from nest.solve.dp.by_price import worse
from nest.solve.dp.choices import Choice
from nest.solve.dp.pool_tables import Curves
from nest.solve.dp.pools import PoolSearch
from nest.spec import Problem
from tests.agreement.compare import disagreements
from tests.agreement.test_shortcuts import idle_problem, low_thresholds  # noqa: F401 - a fixture.


def two_pools(seed: int) -> dict[str, Any]:
    """Layers that mostly do not fit unless some of them are recomputed, on two pools of one device or two."""
    random = Random(seed)
    zeros = [0.0] * 7

    def on(pool: str, speed: float) -> dict[str, Any]:
        forward = [random.choice([1.0, 1.0, 1.5]) * speed for _ in zeros]
        return {
            "name": pool,
            "pool": pool,
            "degrees": {"tp": 1},
            "width": 1,
            "samples": 1,
            "forward": forward,
            "backward": [2 * each for each in forward],
            "state": {},
            "recompute": {
                "none": {"extra": zeros, "first": [8.0] * 7, "more": [8.0] * 7, "peak": zeros},
                "full": {"extra": forward, "first": [1.0] * 7, "more": [1.0] * 7, "peak": [2.0] * 7},
            },
            "edge_bytes": [1.0] * 6,
        }

    pools = [
        {
            "name": name,
            "memory": random.uniform(12, 50),
            "levels": [{"fanout": random.choice([1, 2]), "bandwidth": 100.0, "latency": 0.0}],
        }
        for name in ("new", "old")
    ]
    return {
        "nest": 1,
        "training": {"global_batch": random.choice([2, 4, 8]), "schedule": "1f1b"},
        "cluster": {"pools": pools, "between": [{"pools": ["new", "old"], "bandwidth": 50.0, "latency": 0.0}]},
        "search": {"zero": [0], "recompute_layers": True},
        "profile": {
            "layers": [f"layer {index}" for index in range(7)],
            "edges": [[index, index + 1] for index in range(6)],
            "candidates": [on("new", 1.0), on("old", random.choice([1.0, 0.7]))],
        },
    }


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_stages_of_pools_take_no_less_than_where_nothing_is_sent(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lean, compared = PoolSearch._lean, 0

    def checked(self: PoolSearch, configuration: Any, place: int) -> Curves:
        nonlocal compared
        curves, tables = lean(self, configuration, place), self._every_table(configuration, place, numpy.inf)
        for in_flight in (1.0, 2.0, 4.0):
            assert (curves.least(in_flight) <= tables.least(in_flight)[0] * (1 + 1e-9)).all()
            compared += 1
        return curves

    monkeypatch.setattr(PoolSearch, "_lean", checked)
    assert nest.solve(two_pools(seed)).batch_time is not None
    assert compared


def idle_parts(seed: int) -> dict[str, Any]:
    """Layers that compute nothing among those that do, and a number of recomputed layers that rules speak of."""
    random = Random(seed)
    problem = idle_problem(random)
    (candidate,) = problem["profile"]["candidates"]
    kept, count = candidate["recompute"]["none"], len(candidate["forward"])
    rows = list(zip(kept["first"], kept["more"], kept["peak"], candidate["forward"], strict=True))
    candidate["recompute"]["full"] = {
        "extra": list(candidate["forward"]),
        "first": [first * random.choice([0, 0.2, 0.5]) for first, *_ in rows],
        "more": [more * random.choice([0, 0.3]) for _, more, *_ in rows],
        "peak": [peak + random.choice([0, 1]) if forward else 0 for *_, peak, forward in rows],
        "stash_inputs": random.random() < 0.5,
    }
    problem["search"] = {"recompute_layers": True, "zero": [0]}
    problem["cluster"]["memory"] = random.choice([6, 8, 10, 12, 15, 20])
    rules = ["uniform(recompute)", "recompute_layers == 1", "recompute_layers in [0, 2]", "pp > 1", "pp == 2"]
    problem["constraints"] = ["replicas <= 2", random.choice(rules)]
    if random.random() < 0.3:
        problem["fixed"] = {"recompute_layers": random.randint(1, count - 1)}
    return problem


@pytest.mark.longer
@pytest.mark.usefixtures("low_thresholds")
@pytest.mark.parametrize("seed", [0, 4, 26, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(30, 130))])
def test_idle_layers_count_among_the_first_of_their_own_stage(seed: int) -> None:
    assert disagreements(idle_parts(seed)) == []


@pytest.mark.parametrize("hiding", [False, True])
def test_no_choice_stands_for_one_in_which_some_layer_runs_less_again(hiding: bool) -> None:
    problem = two_pools(0)
    for place, candidate in enumerate(problem["profile"]["candidates"]):
        rows = candidate["recompute"]
        rows["selective"] = {
            **rows["full"],
            "extra": [each * (0.3 if place else 1.2) for each in rows["full"]["extra"]],
        }
    problem["training"]["hiding"] = hiding
    instance = build_instance(structure(problem, Problem), registry())
    search = SimpleNamespace(instance=instance, once=lambda key, make: make())
    configuration = SimpleNamespace(schedule=instance.space.schedules[0])
    for candidate in range(2):
        choices = [Choice(name, zero) for name in instance.recompute_names(candidate) for zero in (0, 2)]
        runs = [tuple(range(first, last)) for first in range(7) for last in range(first + 1, 8)]
        again = [
            [stage_mode(instance, StageDecision(run, candidate, each.recompute, 0, 0)).extra[list(run)] for run in runs]
            for each in choices
        ]
        pairs = worse(search, configuration, candidate, choices)  # type: ignore[arg-type]
        assert any(":" in choices[one].recompute and ":" in choices[other].recompute for one, other in pairs)
        for one, other in pairs:
            told = numpy.equal if hiding and choices[other].zero > 1 else numpy.greater_equal
            assert all(told(*rows).all() for rows in zip(again[one], again[other], strict=True))
