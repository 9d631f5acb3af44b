"""`nest check` prices a plan on a network that is no hierarchy where its placement says that its blocks lie."""

from itertools import pairwise

import pytest

import nest
from tests.measured import profile

SLOW = [
    {"source": f"d{i}", "target": f"d{j}", "bandwidth": 1e9 if (i, j) == (1, 2) else 50e9, "latency": 1e-6}
    for i in range(6)
    for j in range(i + 1, 6)
]
PROBLEM = {
    "nest": 1,
    "training": {"global_batch": 8},
    "constraints": ["replicas == 1", "pp == 4"],
    "cluster": {"memory": 1e12, "topology": {"nodes": [{"id": f"d{i}"} for i in range(6)], "links": SLOW}},
    "profile": profile([1.0] * 4, [1.0] * 4, sent=1e9),
}


def test_a_placement_is_priced_anew():
    plan = nest.solve(PROBLEM).to_dict()
    assert nest.check(plan).ok
    (replica,) = plan["placement"]["replicas"]
    # 4 stages of 2 s and messages of 1 GB: none crosses the slow link.
    message = 1e-6 + 1e9 / 50e9
    assert plan["batch_time"] == pytest.approx(7 * (2 + 2 * message) + 8 + 6 * message)
    assert {"d1", "d2"} not in [{one, two} for (one,), (two,) in pairwise(replica)]

    def complaint(*devices: str) -> str:
        placed = {"replicas": [[[device] for device in devices]]}
        return " ".join(nest.check({**plan, "placement": placed}).disagreements)

    assert "batch_time" in complaint("d0", "d1", "d2", "d3")
    assert "several blocks" in complaint("d0", "d1", "d3", "d3")
    assert "as many devices as its width" in complaint("d0", "d1", "d3")
    assert "no such device" in complaint("d0", "d1", "d3", "nowhere")
    (missing,) = nest.check({**plan, "placement": None}).disagreements
    assert "placement is missing" in missing


def test_a_hierarchy_has_no_placement():
    levels = {"memory": 1e12, "levels": [{"fanout": 6, "bandwidth": 50e9}]}
    plan = nest.solve({**PROBLEM, "cluster": levels}).to_dict()
    assert plan["placement"] is None
    placed = {"replicas": [[["0"], ["1"], ["2"], ["3"]]]}
    (stray,) = nest.check({**plan, "placement": placed}).disagreements
    assert "hierarchy" in stray
