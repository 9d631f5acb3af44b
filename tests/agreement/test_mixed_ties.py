"""Of equally fast mixed plans that of the fewest devices is taken, then of the fewest stages: brute force agrees."""

from random import Random

import pytest

from tests.agreement.compare import disagreements
from tests.seeds import few

TOLD = (115, 226, 430)
"""Problems whose best plans a search that forgot devices decided otherwise."""


def problem(seed: int) -> dict:
    """Layers that are alike, times in whole numbers, networks that cost nothing: many plans are equally fast."""
    random = Random(seed)
    layers, fanouts = random.randint(2, 4), random.choice([[8], [4, 2], [2, 4], [6]])
    size = fanouts[0] * (fanouts[1] if len(fanouts) > 1 else 1)
    ends = {fanouts[0], size}
    widths = [w for w in (1, 2, 3, 4, 6) if w <= size and all(end % w == 0 or w % end == 0 for end in ends)]
    work = [random.choice([1, 1, 1, 2, 4]) for _ in range(layers)]
    nothing = [0.0] * layers
    candidates = []
    for index in range(3):
        width = random.choice(widths)
        shared = random.random() < 0.8
        held = [random.choice([0.0, 1.0])] * layers
        candidates.append(
            {
                "name": f"c{index}",
                "degrees": {"tp": width},
                "width": width,
                "samples": 1,
                "forward": [12.0 * (each / width if shared else random.choice([1, 2, 3])) for each in work],
                "backward": nothing,
                "state": {
                    "dense": {
                        "ranks": [0], "weights": held, "gradients": held, "optimizer": nothing, "update": nothing,
                    }
                },
                "recompute": {
                    "none": {"extra": nothing, "first": [1.0] * layers, "more": [1.0] * layers, "peak": nothing}
                },
                "edge_bytes": [0.0] * (layers - 1),
            }
        )  # fmt: skip
    levels = [
        {"name": f"level {index}", "fanout": fanout, "bandwidth": 1e12, "latency": 0.0}
        for index, fanout in enumerate(fanouts)
    ]
    return {
        "nest": 1,
        "training": {"global_batch": random.choice([2, 4, 8]), "schedule": random.choice(["nest", "nest", "1f1b"])},
        "cluster": {"memory": random.choice([1e3, 1e3, 6.0, 9.0]), "levels": levels},
        "search": {"mixed": True, "zero": [0]},
        "profile": {
            "layers": [f"l{index}" for index in range(layers)],
            "edges": [[index, index + 1] for index in range(layers - 1)],
            "candidates": candidates,
        },
    }


@pytest.mark.parametrize("seed", few([*TOLD, *range(1000, 1012)], *TOLD))
def test_ties_go_to_fewer_devices_then_fewer_stages(seed):
    assert disagreements(problem(seed)) == []


@pytest.mark.slow
def test_many_ties_go_to_fewer_devices_then_fewer_stages():
    assert [seed for seed in range(2000, 2600) if disagreements(problem(seed))] == []
