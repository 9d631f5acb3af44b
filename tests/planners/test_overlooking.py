"""Planners that overlook something: each is exact where that does not matter, and wrong where it does."""

import pytest
from attrs import evolve

import nest
from nest.solve.dp import solve
from tests.planners.instances import candidate, planned, problem


def test_phaze_is_exact_where_every_link_is_the_same():
    written = problem(1e10)
    for level in written["cluster"]["levels"]:
        level |= {"bandwidth": 1e10, "latency": 1e-5}
    _, _, seen = planned("phaze", written)
    assert seen.priced.batch_time <= nest.solve(written).batch_time * (1 + 1e-9)


def test_phaze_pays_for_the_network_it_overlooks():
    """Gradients hardly cost anything on the fast level and much on the slow one, where stages would be better."""
    written = problem(1e12, candidate(1, sent=1e3))
    written["cluster"]["levels"][1]["bandwidth"] = 1e8
    _, proposal, seen = planned("phaze", written)
    best = nest.solve(written)
    assert seen.fits
    assert seen.priced.batch_time > best.batch_time * 1.05
    expected = float(proposal.remarks[0].split()[2])
    assert expected < best.batch_time


def test_phaze_lays_its_ranks_as_frameworks_do_where_that_is_all_the_same_to_it():
    """On a flat network the order of ranks is a tie; pp-inner would send gradients over the slow level for nothing."""
    written = problem(1e12, candidate(1), constraints=["pp == 4"])
    _, proposal, seen = planned("phaze", written)
    assert proposal.solution.rank_order == "dp-inner"
    assert seen.fits
    written["search"]["rank_order"] = ["pp-inner"]
    assert planned("phaze", written)[1].solution.rank_order == "pp-inner"
    written["search"]["rank_order"] = ["pp-inner", "dp-inner"]
    written["constraints"].append("rank_order == 'pp-inner'")
    assert planned("phaze", written)[1].solution.rank_order == "pp-inner"


def test_phaze_prices_the_inside_of_blocks_for_its_own_network():
    """Tensor parallelism over the slow level looks cheap to it."""
    slow, fast = "10 MB/s", "900 GB/s"
    written = {
        "nest": 1,
        "model": {"transformer": {"layers": 2, "hidden": 1024, "ffn": 4096, "heads": 8, "vocab": 1000}},
        "training": {"global_batch": 1, "sequence_length": 1024, "micro_batch": [1]},
        "cluster": {
            "device": "h100-sxm",
            "levels": [{"fanout": 2, "bandwidth": fast}, {"fanout": 4, "bandwidth": slow}],
        },
        "strategies": {"cp": [1]},
    }
    instance, proposal, seen = planned("phaze", written)
    assert instance.candidates[proposal.solution.stages[0].candidate].degrees["tp"] == 8
    assert seen.priced.batch_time > nest.solve(written).batch_time * 2


def test_alpa_is_exact_where_memory_is_plenty():
    written = problem(1e15, zero=(0, 1, 3))
    _, _, seen = planned("alpa", written)
    assert seen.priced.batch_time <= nest.solve(written).batch_time * (1 + 1e-9)


def test_alpa_shards_what_does_not_fit_and_no_more_than_needed():
    instance, proposal, seen = planned("alpa", problem(2e9, candidate(1), zero=(0, 1, 2, 3), constraints=["pp == 1"]))
    boundless = evolve(instance, cluster=evolve(instance.cluster, memory=1e30))
    unaware = solve(boundless).solution
    used = proposal.solution.stages[0].zero
    assert seen.fits
    assert used > max(stage.zero for stage in unaware.stages)
    assert f"ZeRO {used}" in proposal.remarks[0]
    assert evolve(proposal.solution, stages=unaware.stages) == unaware
    weaker = evolve(proposal.solution, stages=tuple(evolve(each, zero=used - 1) for each in proposal.solution.stages))
    assert not planned_fits(instance, weaker)


def planned_fits(instance, solution) -> bool:
    from nest.plan.evaluate import evaluate

    return evaluate(instance, solution).fits


@pytest.mark.parametrize("zero", [(0,), (0, 1, 2, 3)])
def test_alpa_says_what_it_lacks(zero):
    _, proposal, seen = planned("alpa", problem(1e6, zero=zero))
    assert not seen.fits
    assert proposal.remarks == ("it does not fit, though sharded as far as the problem allows.",)
