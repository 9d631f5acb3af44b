"""`nest check` prices the placement on a network that is no hierarchy anew."""

import nest

SLOW = [
    {"source": f"d{i}", "target": f"d{j}", "bandwidth": 1e9 if (i, j) == (1, 2) else 50e9, "latency": 1e-6}
    for i in range(6)
    for j in range(i + 1, 6)
]
MODE = {"extra": [0] * 4, "first": [0] * 4, "more": [0] * 4, "peak": [0] * 4}
CANDIDATE = {
    "name": "c",
    "degrees": {},
    "width": 1,
    "samples": 1,
    "forward": [1.0] * 4,
    "backward": [1.0] * 4,
    "state": {},
    "recompute": {"none": MODE},
    "edge_bytes": [1e9] * 3,
}
PROBLEM = {
    "nest": 1,
    "training": {"global_batch": 8},
    "constraints": ["replicas == 1", "pp == 4"],
    "cluster": {"memory": 1e12, "topology": {"nodes": [{"id": f"d{i}"} for i in range(6)], "links": SLOW}},
    "profile": {"layers": list("abcd"), "edges": [[0, 1], [1, 2], [2, 3]], "candidates": [CANDIDATE]},
}


def test_a_placement_is_priced_anew():
    plan = nest.solve(PROBLEM).to_dict()
    placement = plan["placement"]
    assert placement["batch_time"] < plan["batch_time"]
    assert nest.check(plan).ok

    def complaint(**changed):
        (told,) = nest.check({**plan, "placement": {**placement, **changed}}).disagreements
        return told

    assert "batch_time" in complaint(batch_time=placement["batch_time"] * 0.99)
    assert "lower_bound" in complaint(lower_bound=placement["batch_time"] * 1.01)
    assert "no device" in complaint(replicas=[[["d0"], ["d1"], ["d3"], ["nowhere"]]])
    assert "of its own" in complaint(replicas=[[["d0"], ["d1"], ["d3"], ["d3"]]])
    assert "batch_time" in complaint(replicas=[[["d0"], ["d1"], ["d2"], ["d3"]]])
