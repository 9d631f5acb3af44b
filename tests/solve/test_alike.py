"""Stages that all recompute as many first blocks: how many are needed at least, against all ways to cut a chain."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

import nest
from nest.instance import Instance, StageDecision, stage_mode
from nest.solve.dp.bounds import Packing
from nest.solve.dp.plain import PlainSearch
from tests.seeds import seeds

LAYERS = 7


def chain(seed: int) -> dict[str, Any]:
    """Layers of unlike costs, of which some are in no block or share one, that fit only with few recomputed blocks."""
    random = Random(seed)
    forward, kept = ([random.choice([1.0, 1.5, 2.0]) for _ in range(LAYERS)] for _ in range(2))
    zeros = [0.0] * LAYERS
    candidate = {
        "name": "one",
        "degrees": {"tp": 1},
        "width": 1,
        "samples": 1,
        "forward": forward,
        "backward": [2 * each for each in forward],
        "state": {
            "all": {
                "ranks": [0],
                "weights": [random.choice([0.0, 1.0]) for _ in range(LAYERS)],
                "gradients": zeros,
                "optimizer": zeros,
                "update": zeros,
            }
        },
        "recompute": {
            "none": {"extra": zeros, "first": kept, "more": kept, "peak": zeros},
            "full": {
                "extra": forward,
                "first": [0.2 * each for each in kept],
                "more": [0.2 * each for each in kept],
                "peak": [random.choice([0.0, 0.5]) for _ in range(LAYERS)],
            },
        },
        "edge_bytes": [0.0] * (LAYERS - 1),
    }
    return {
        "nest": 1,
        "training": {"global_batch": 8, "schedule": "1f1b"},
        "cluster": {
            "memory": random.uniform(6, 16),
            "levels": [{"fanout": random.choice([2, 4]), "bandwidth": 100.0, "latency": 0.0}],
        },
        "search": {"zero": [0], "recompute_layers": True, "within": 0},
        "constraints": ["uniform(recompute)"],
        "profile": {
            "layers": [f"layer {index}" for index in range(LAYERS)],
            "edges": [[index, index + 1] for index in range(LAYERS - 1)],
            "candidates": [candidate],
        },
    }


def needed(instance: Instance, name: str, in_flight: Sequence[float], time_limit: float, room: float) -> int:
    """Stages that some way to cut needs at least, each priced layer by layer; one more than there may be if none do."""
    (candidate,) = instance.candidates
    weights = sum(group.weights + group.gradients + group.optimizer for group in candidate.state)

    def fits(begin: int, end: int, flying: float) -> bool:
        layers = list(range(begin, end))
        mode = stage_mode(instance, StageDecision(tuple(layers), 0, name, 0, 0))
        seconds = (candidate.forward + candidate.backward + mode.extra)[layers].sum()
        held = (mode.first + (flying - 1) * mode.more + weights)[layers].sum() + mode.peak[layers].max()
        return bool(seconds <= time_limit and held <= room)

    begins = {LAYERS}
    for count, flying in enumerate(in_flight, start=1):
        begins = {begin for end in begins for begin in range(end) if fits(begin, end, flying)}
        if 0 in begins:
            return count
    return len(in_flight) + 1


@pytest.mark.parametrize("seed", seeds(12, 200))
def test_no_cuts_need_fewer_stages(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fewest, compared, instances = Packing.fewest_alike, [], []

    def checked(self: Packing, *asked: Any) -> dict[str, int]:
        found = fewest(self, *asked)
        for name, count in found.items():
            least = needed(instances[-1], name, *asked[2:])
            assert count <= least
            compared.append((count, least))
        return found

    packed = PlainSearch._packed
    monkeypatch.setattr(Packing, "fewest_alike", checked)
    monkeypatch.setattr(
        PlainSearch, "_packed", lambda self, *asked: instances.append(self.instance) or packed(self, *asked)
    )
    nest.solve(chain(seed))
    # Where memory is the same in both modes but for the largest layer, what is told is exact.
    assert not compared or any(count == least for count, least in compared), compared
