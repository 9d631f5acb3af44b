"""Alpa sees two dimensions of a network, memory stage by stage, and no boundaries; Alpa-E sees no memory at first."""

from itertools import product

import pytest

import nest
from planners_tests.instances import LAYERS, candidate, planned, problem


def submeshes(instance, solution) -> list[int]:
    return [instance.candidates[stage.candidate].width * solution.replicas for stage in solution.stages]


@pytest.mark.parametrize("memory", [1e12, 4e9, 2e9])
def test_stages_cover_all_devices_with_submeshes_of_a_machine_or_of_whole_machines(memory):
    instance, proposal, seen = planned("alpa", problem(memory, zero=(0, 1)))
    sizes = submeshes(instance, proposal.solution)
    assert seen.admitted
    assert sum(sizes) == instance.cluster.size
    assert all(size in (1, 2, 4) or size % 4 == 0 for size in sizes)


def test_memory_is_tested_inside_the_recurrence():
    """One copy of all layers is the fastest and does not fit: stages that do are found, not the first plan mended."""
    roomy, tight = (problem(memory, candidate(1, sent=1.0), zero=(0,)) for memory in (1e12, 2e9))
    for written in (roomy, tight):
        written["cluster"]["levels"][1]["bandwidth"] = 1e12
    assert len(planned("alpa", roomy)[1].solution.stages) == 1
    _, proposal, seen = planned("alpa", tight)
    assert len(proposal.solution.stages) > 1
    assert seen.admitted


def test_its_latency_is_the_least_of_its_own_model():
    """Of all numbers of stages and all splits, by a sum over stages and the slowest for each further micro-batch."""
    written = problem(1e12, candidate(2, sent=1.0), zero=(0,))
    times = [1.0, 3.0, 1.0, 1.0, 4.0, 1.0, 2.0, 1.0]
    only = written["profile"]["candidates"][0]
    only["forward"], only["backward"] = times, [0.0] * LAYERS
    only["state"]["dense"] |= {"gradients": [0.0] * LAYERS, "update": [0.0] * LAYERS}
    found = {}
    for cuts in product((False, True), repeat=LAYERS - 1):
        stages, run = [], 0.0
        for layer, time in enumerate(times):
            run += time
            if layer == LAYERS - 1 or cuts[layer]:
                stages.append(run)
                run = 0.0
        if 16 % (2 * len(stages)) == 0:
            micro_batches = 64 // (16 // 2 // len(stages))
            latency = sum(stages) + (micro_batches - 1) * max(stages)
            found[latency] = stages
    _, proposal, _ = planned("alpa", written)
    assert float(proposal.remarks[0].split()[2]) == pytest.approx(min(found), rel=1e-3)


def test_what_crosses_a_boundary_costs_it_nothing():
    light, heavy = (problem(2e9, candidate(1, sent=sent), zero=(0, 1)) for sent in (1.0, 1e9))
    assert planned("alpa", light)[1].solution == planned("alpa", heavy)[1].solution


def test_the_integer_program_chooses_among_shardings_of_one_shape():
    slow, quick = candidate(4, tp=4), candidate(4, tp=2, ep=2)
    slow["forward"] = [3 * each for each in slow["forward"]]
    instance, proposal, _ = planned("alpa", problem(1e12, slow, quick))
    assert instance.candidates[proposal.solution.stages[0].candidate].degrees == {"tp": 2, "ep": 2}


@pytest.mark.longer
def test_stages_have_submeshes_of_their_own_where_plans_may_be_mixed():
    """The first layer takes as long as all others together: it gets a submesh of its own, twice as wide as theirs."""
    wide = [candidate(width, tp=1, batch=width) for width in (1, 2, 4)]
    for each in wide:
        each["samples"] = 4
        each["forward"][0] = 20e-3 / each["width"]
    written = problem(1e12, *wide, zero=(0,))
    written["search"]["mixed"] = True
    written["cluster"]["levels"] = written["cluster"]["levels"][:1]
    written["cluster"]["levels"][0]["fanout"] = 4
    instance, proposal, seen = planned("alpa", written)
    assert seen.admitted
    assert sum(submeshes(instance, proposal.solution)) == 4
    assert seen.priced.batch_time >= nest.solve(written).batch_time * (1 - 1e-9)


def test_what_does_not_fit_anywhere_is_told():
    _, proposal, _ = planned("alpa", problem(1e6))
    assert proposal.solution is None
    assert "no way to divide" in proposal.remarks[0]


def test_alpa_e_shards_what_does_not_fit_and_no_more_than_needed():
    instance, proposal, seen = planned("alpa-e", problem(2e9, candidate(1), zero=(0, 1, 2, 3), constraints=["pp == 1"]))
    used = proposal.solution.stages[0].zero
    assert seen.admitted
    assert used > 1
    assert proposal.remarks == (f"sharded with ZeRO {used} on blocks of width 1, as it did not fit.",)
    weaker = problem(2e9, candidate(1), zero=tuple(range(used)), constraints=["pp == 1"])
    assert not planned("alpa-e", weaker)[2].admitted
    assert instance.space.zero == (0, 1, 2, 3)


def test_alpa_e_grows_its_shards_until_they_fit():
    """With ZeRO 1 alone the state is too large for one device and two: blocks of four are needed."""
    written = problem(2.0e9, candidate(1), candidate(2), candidate(4), zero=(1,), constraints=["pp == 1"])
    instance, proposal, seen = planned("alpa-e", written)
    assert seen.admitted
    assert instance.candidates[proposal.solution.stages[0].candidate].width == 4
    roomy = {**written, "cluster": {**written["cluster"], "memory": 1e12}}
    assert planned("alpa-e", roomy)[1].remarks == ()


@pytest.mark.parametrize("zero", [(0,), (0, 1, 2, 3)])
def test_alpa_e_says_what_it_lacks(zero):
    _, proposal, seen = planned("alpa-e", problem(1e6, zero=zero))
    assert not seen.admitted
    assert proposal.remarks == ("it does not fit, though sharded as far as the problem allows.",)
