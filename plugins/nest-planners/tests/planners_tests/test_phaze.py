"""Phaze is exact where the network does not matter, and wrong where it does."""

import pytest

import nest
from planners_tests.instances import candidate, planned, problem


@pytest.mark.longer
def test_it_is_exact_where_every_link_is_the_same():
    written = problem(1e10)
    for level in written["cluster"]["levels"]:
        level |= {"bandwidth": 1e10, "latency": 1e-5}
    _, _, seen = planned("phaze", written)
    assert seen.priced.batch_time <= nest.solve(written).batch_time * (1 + 1e-9)


def test_it_pays_for_the_network_it_overlooks():
    """Gradients hardly cost anything on the fast level and much on the slow one, where stages would be better."""
    written = problem(1e12, candidate(1, sent=1e3))
    written["cluster"]["levels"][1]["bandwidth"] = 1e8
    _, proposal, seen = planned("phaze", written)
    best = nest.solve(written)
    assert seen.admitted
    assert seen.priced.batch_time > best.batch_time * 1.05
    expected = float(proposal.remarks[0].split()[2])
    assert expected < best.batch_time


def test_its_plan_is_laid_out_in_the_faster_order():
    """On a flat network the order of ranks is a tie: gradients inside a node, or messages, whichever costs more."""
    for sent, order in ((1.0, "dp-inner"), (1e9, "pp-inner")):
        written = problem(1e12, candidate(1, sent=sent), constraints=["pp == 4"])
        _, proposal, seen = planned("phaze", written)
        assert proposal.solution.rank_order == order
        assert seen.admitted
    written["search"]["rank_order"] = ["dp-inner"]
    assert planned("phaze", written)[1].solution.rank_order == "dp-inner"
    written["search"]["rank_order"] = ["pp-inner", "dp-inner"]
    written["constraints"].append("rank_order == 'dp-inner'")
    assert planned("phaze", written)[1].solution.rank_order == "dp-inner"


@pytest.mark.longer
def test_it_prices_the_inside_of_blocks_for_its_own_network():
    """Tensor parallelism over the slow level looks cheap to it."""
    slow, fast = "10 MB/s", "900 GB/s"
    written = {
        "nest": 1,
        "model": {"transformer": {"layers": 2, "hidden": 1024, "ffn": 4096, "heads": 8, "vocab": 1000}},
        "training": {"global_batch": 1, "sequence_length": 1024, "micro_batch": [1], "graphs": "iteration"},
        "cluster": {
            "device": "h100-sxm",
            "levels": [{"fanout": 2, "bandwidth": fast}, {"fanout": 4, "bandwidth": slow}],
        },
        "strategies": {"cp": [1]},
    }
    instance, proposal, seen = planned("phaze", written)
    assert instance.candidates[proposal.solution.stages[0].candidate].degrees["tp"] == 8
    assert seen.priced.batch_time > nest.solve(written).batch_time * 2
