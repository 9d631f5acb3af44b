"""The published algorithm: right where its model is, wrong where it is not."""

from math import inf

import pytest

import nest
from planners_tests.instances import LAYERS, candidate, planned, problem
from planners_tests.published_recurrence import best, random_chain
from tests.seeds import blocks


def quiet(**keys):
    """A chain whose communication hardly counts, as in the paper's inputs, with the paper's schedule."""
    written = problem(1e12, candidate(1, sent=1.0), **keys)
    only = written["profile"]["candidates"][0]
    only["state"]["dense"] |= {"gradients": [1.0] * LAYERS, "weights": [1.0] * LAYERS, "update": [0.0] * LAYERS}
    for level in written["cluster"]["levels"]:
        level["latency"] = 0.0
    written["training"] |= {"schedule": "nest", "uneven_batch": True}
    written["search"]["rank_order"] = ["pp-inner"]
    return written


@pytest.mark.longer
def test_it_is_optimal_where_communication_hardly_counts():
    for constraint in ([], ["pp >= 3"], ["replicas <= 2"]):
        written = quiet(constraints=constraint)
        best = nest.solve(written).batch_time
        _, _, seen = planned("nest-paper", written)
        if not constraint:
            assert seen.priced.batch_time == pytest.approx(best, rel=1e-6)
        elif seen is not None:
            assert seen.priced.batch_time >= best * (1 - 1e-9)


def test_it_takes_the_first_boundary_for_one_inside_a_node():
    """Behind the first stage a tensor leaves the node: the program prices it inside, and cuts where it is dear."""
    written = quiet(constraints=["pp == 2", "replicas == 1"])
    written["cluster"]["levels"] = [
        {"name": "node", "fanout": 1, "bandwidth": 1e15, "latency": 0.0},
        {"name": "spine", "fanout": 2, "bandwidth": 1e9, "latency": 0.0},
    ]
    only = written["profile"]["candidates"][0]
    only["edge_bytes"] = [1e7] * (LAYERS - 1)
    only["edge_bytes"][LAYERS // 2] = 1.0
    _, proposal, seen = planned("nest-paper", written)
    assert seen.admitted
    best = nest.solve(written)
    assert seen.priced.batch_time > best.batch_time * 1.05
    assert float(proposal.remarks[0].split()[2]) < best.batch_time


@pytest.mark.parametrize("chains", blocks(0, 100))
def test_it_decides_as_the_recurrence_written_again(chains: range) -> None:
    shapes = set()
    for seed in chains:
        written = random_chain(seed)
        seconds, index, replicas, cuts = best(written)
        _, proposal, seen = planned("nest-paper", written)
        if seconds == inf:
            assert seen is None or not seen.admitted, seed
            continue
        assert seen.admitted, seed
        assert proposal.remarks == (f"it predicts {seconds:.4g} s.",), seed
        decided = proposal.solution
        assert {stage.candidate for stage in decided.stages} == {index}, seed
        assert (decided.replicas, tuple(stage.layers[0] for stage in decided.stages[1:])) == (replicas, cuts), seed
        shapes.add((replicas, len(cuts)))
    assert len(shapes) >= 10


def expected(pp: int, sent: float, gradients: list[float], *latencies: float) -> tuple[float, list[int]]:
    """Seconds that it expects of stages on levels of two devices at 1 GB/s, and the layers of each stage."""
    written = quiet(constraints=[f"pp == {pp}", "replicas == 1" if pp > 2 else "replicas == 2"])
    written["search"]["recompute"] = ["none"]
    only = written["profile"]["candidates"][0]
    only["state"]["dense"]["gradients"] = gradients
    only["edge_bytes"] = [sent] * (LAYERS - 1)
    written["cluster"]["levels"] = [
        {"name": f"level {place}", "fanout": 2, "bandwidth": 1e9, "latency": latency}
        for place, latency in enumerate(latencies)
    ]
    _, proposal, seen = planned("nest-paper", written)
    assert seen.admitted
    return float(proposal.remarks[0].split()[2]), [len(stage.layers) for stage in proposal.solution.stages]


def test_the_first_cut_is_decided_with_its_gradients() -> None:
    """By load alone the layers are halved; the fourth layer's gradients take longer than that saves."""
    half = LAYERS // 2
    assert expected(2, 1.0, [1.0] * LAYERS, 0.0, 0.0)[1] == [half, half]
    heavy = [1.0] * (half - 1) + [1e9] + [1.0] * half
    assert expected(2, 1.0, heavy, 0.0, 0.0)[1] == [half - 1, half + 1]


@pytest.mark.parametrize(("latencies", "largest"), [((0.0001, 0.0003), 0.0003), ((0.0004, 0.0003), 0.0004)])
def test_messages_above_level_0_count_twice_and_with_the_largest_latency(latencies, largest) -> None:
    """Of four stages on nodes of two devices, the middle two send each other across nodes, and to the others within."""
    seconds, layers = expected(4, 2e5, [1.0] * LAYERS, *latencies)
    assert layers == [2, 2, 2, 2]
    within, across = latencies[0] + 0.0002, 2 * (largest + 0.0002)
    assert seconds == pytest.approx((2 * 0.003 + within + across) * (64 + 3), rel=1e-3)


def test_zero_is_reached_only_where_nothing_fits_without():
    roomy, tight = (problem(memory, candidate(1), zero=(0, 1, 2, 3), constraints=["pp == 1"]) for memory in (1e12, 4e9))
    assert planned("nest-paper", roomy)[1].solution.stages[0].zero == 0
    _, proposal, seen = planned("nest-paper", tight)
    assert seen.admitted
    assert proposal.solution.stages[0].zero >= 1


def test_the_last_stage_recomputes_nothing():
    written = problem(8e8, candidate(1), zero=(0,))
    _, proposal, seen = planned("nest-paper", written)
    assert seen.admitted
    modes = [stage.recompute for stage in proposal.solution.stages]
    assert modes[-1] == "none"
    assert set(modes) == {"none", "full"}
