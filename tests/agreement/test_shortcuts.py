"""Short cuts of the search that small problems would not take: thresholds are lowered so that they do."""

import importlib
from random import Random

import pytest

from nest.solve.dp import downsets
from tests.agreement.compare import disagreements
from tests.agreement.problems import random_problem
from tests.measured import profile

attempt = importlib.import_module("nest.solve.dp.attempt")


@pytest.fixture
def low_thresholds(monkeypatch):
    """Idle layers apart, coarse cuts first and stages by their range of times, however small the graph."""
    monkeypatch.setattr(attempt, "FEW_CUTS", 1)
    monkeypatch.setattr(attempt, "MANY_CUTS", 2)
    monkeypatch.setattr(downsets, "COARSE", 2)


def idle_problem(random: Random) -> dict:
    """Few layers that compute among many that do not, and tensors of which many are empty."""
    count = random.randint(4, 5)
    busy = [index in (0, count - 1) or random.random() < 0.25 for index in range(count)]

    def row(largest: int) -> list[int]:
        return [random.choice([0, random.randint(0, largest)]) for _ in range(count)]

    edges = [[a, b] for a in range(count) for b in range(a + 1, count) if random.random() < 0.6]
    forward = [random.randint(1, 3) if each else 0 for each in busy]
    group = {"weights": row(3), "gradients": row(3), "optimizer": row(3), "update": row(1)}
    mode = {
        "first": row(3),
        "more": row(3),
        "peak": row(3),
        "stash_inputs": random.random() < 0.5,
    }
    return {
        "nest": 1,
        "training": {
            "global_batch": random.choice([2, 4, 8]),
            "schedule": random.choice(["1f1b", "gpipe", "nest"]),
            **random.choice([{}, {"hiding": True, "exposed": 0.0}]),
        },
        "cluster": {
            "memory": random.choice([1e9, 1e9, 30, 20]),
            "levels": [
                {"fanout": 2, "bandwidth": 10.0, "latency": random.choice([0, 0.2])},
                {"fanout": 2, "bandwidth": random.choice([3.0, 10.0]), "latency": 0.3},
            ],
        },
        "constraints": ["replicas <= 2"],
        "profile": profile(
            forward,
            forward,
            edges=edges,
            state=random.choice([None, group]),
            kept=mode,
            edge_bytes=[random.choice([0, 1, random.randint(1, 90)]) for _ in edges],
        ),
    }


@pytest.mark.usefixtures("low_thresholds")
@pytest.mark.parametrize("first", [0, 50])
@pytest.mark.slow
def test_idle_layers_decided_apart_leave_the_optimum(first):
    for seed in range(first, first + 50):
        assert disagreements(idle_problem(Random(seed))) == [], seed


@pytest.mark.usefixtures("low_thresholds")
@pytest.mark.parametrize("first", [5000])
@pytest.mark.slow
def test_first_plans_and_ranges_leave_the_optimum(first):
    for seed in range(first, first + 50):
        assert disagreements(random_problem(Random(seed), "plain")) == [], seed


@pytest.mark.usefixtures("low_thresholds")
def test_what_a_merged_layer_reads_keeps_its_home_in_place():
    """Layer 1 reads an empty tensor; once layer 2, which reads 100 bytes, is merged into it, it reads them."""
    edges, seconds = [[0, 1], [0, 2], [1, 2], [1, 3]], [1, 0, 0, 1]
    problem = {
        "nest": 1,
        "training": {"global_batch": 64, "schedule": "1f1b"},
        "cluster": {"memory": 1e9, "levels": [{"fanout": 2, "bandwidth": 100.0, "latency": 0.0}]},
        "constraints": ["replicas == 1"],
        "profile": profile(seconds, seconds, edges=edges, edge_bytes=[0, 100, 0, 1]),
    }
    assert disagreements(problem) == []
