"""Plans of several candidates, against numbers worked out by hand from PROBLEM.md sections 3 and 4."""

import pytest

from tests.oracle.brute_force import solve
from tests.oracle.check import check_document
from tests.oracle.document import document_of
from tests.oracle.price import price, setting_of, violations


def candidate(name: str, width: int, forward: list[float], *, size: float = 1.0, edge: float, samples: int = 1) -> dict:
    """Two layers; memory is what `size` says of each, gradients are reduced with rank 0."""
    return {
        "name": name,
        "degrees": {"tp": width},
        "width": width,
        "samples": samples,
        "forward": forward,
        "backward": [0.0, 0.0],
        "state": {
            "dense": {
                "ranks": [0],
                "weights": [size] * 2,
                "gradients": [60.0 / width] * 2,
                "optimizer": [0.0] * 2,
                "update": [0.0] * 2,
            }
        },
        "recompute": {
            "none": {"extra": [0.0] * 2, "first": [0.0] * 2, "more": [0.0] * 2, "peak": [0.0] * 2, "stash_inputs": True}
        },
        "edge_bytes": [edge],
    }


@pytest.fixture
def problem() -> dict:
    """The first layer is quick on three devices, the second on two; six devices under each of two switches."""
    return {
        "nest": 1,
        "training": {"global_batch": 4, "schedule": "1f1b"},
        "cluster": {
            "memory": 1e3,
            "levels": [
                {"name": "node", "fanout": 6, "bandwidth": 10.0, "latency": 0.0},
                {"name": "rack", "fanout": 2, "bandwidth": 1.0, "latency": 0.0},
            ],
        },
        "search": {"mixed": True, "zero": [0], "rank_order": ["pp-inner"]},
        "profile": {
            "layers": ["a", "b"],
            "edges": [[0, 1]],
            "candidates": [candidate("two", 2, [50.0, 1.0], edge=4.0), candidate("three", 3, [1.0, 50.0], edge=2.0)],
        },
    }


def plan(offsets: tuple[int, int], *, replicas: int = 2, order: str = "pp-inner") -> dict:
    stages = zip([0, 1], ["three", "two"], offsets, strict=True)
    return {
        "replicas": replicas,
        "rank_order": order,
        "schedule": "1f1b",
        "stages": [
            {"layers": [layer], "candidate": name, "offset": offset, "recompute": "none", "zero": 0}
            for layer, name, offset in stages
        ],
    }


def test_each_replica_owns_a_multiple_of_the_widest_block(problem):
    # 3 * floor(12 / (3 * d)), and not 2 * floor(12 / (2 * d)) = 4 for d = 3.
    owned = [setting_of(problem, plan((0, 4), replicas=replicas)).replica_devices for replicas in (1, 2, 3, 4)]
    assert owned == [12, 6, 3, 3]


def test_stages_are_priced_with_their_own_bytes_and_ranks(problem):
    numbers = price(problem, plan((0, 4)))
    three, two = numbers["stages"]
    # Blocks at 0..2 and 4..5 of replicas of 6 devices: both lie in one node.
    assert [three["level_out"], two["level_in"]] == [0, 0]
    assert [three["devices"], two["devices"]] == [[0, 3], [4, 2]]
    assert three["time"] == pytest.approx(1.0 + 2.0 / 10)  # Gradients as wide blocks receive them.
    assert two["time"] == pytest.approx(1.0 + 4.0 / 10)  # Activations as narrow blocks receive them.
    # Rank 0 of the replicas at 0 and 6: one a node. Twice half the gradients over the outer level's 1 B/s;
    # a flat ring of two is the same.
    assert three["sync_time"] == pytest.approx(2 * 0.5 * 20.0)
    assert two["sync_time"] == pytest.approx(2 * 0.5 * 30.0)
    # Two micro-batches each; the first stage has two in flight, but nothing is cut in front of it.
    assert [three["memory"], two["memory"]] == pytest.approx([1.0 + 20.0, 1.0 + 30.0])
    assert numbers["micro_batches"] == 2
    assert numbers["batch_time"] == pytest.approx(1 * 1.4 + (1.2 + 1.4) + 30.0)
    assert violations(problem, plan((0, 4))) == []


def test_data_parallel_ranks_lie_side_by_side_by_the_stage_s_own_width(problem):
    problem["search"]["rank_order"] = ["dp-inner"]
    three, two = price(problem, plan((0, 4), order="dp-inner"))["stages"]
    # Offset 0: devices 0..2 and 3..5. Offset 4: devices 8..9 and 10..11, in the other node.
    assert [three["devices"], two["devices"]] == [[0, 3], [8, 2]]
    assert three["level_out"] == 1
    # Ranks at 0 and 3, or 0 and 2: within a node, at 10 B/s.
    assert three["sync_time"] == pytest.approx(2 * 0.5 * 20.0 / 10)
    assert two["sync_time"] == pytest.approx(2 * 0.5 * 30.0 / 10)


def test_the_best_plan_mixes(problem):
    problem["constraints"] = ["replicas == 2"]
    answer = solve(problem)
    assert answer.batch_time == pytest.approx(1.4 + 2.6 + 30.0)
    assert [stage["candidate"] for stage in answer.plan["stages"]] == ["three", "two"]
    problem["search"]["mixed"] = False
    assert solve(problem).batch_time > 50


def test_the_widest_stage_stands_for_the_plan_in_its_document(problem):
    document = document_of(problem, plan((0, 4)))
    assert document["candidate"]["name"] == "three"
    assert [stage["candidate"] for stage in document["stages"]] == ["three", "two"]
    assert check_document(document, searched=False) == []
    document["candidate"] = {"name": "two", "degrees": {"tp": 2}, "width": 2, "samples": 1}
    assert any("candidate.name" in line for line in check_document(document))
