"""Galvatron's objective: powers of two, even stages, sharding and recomputation stage by stage."""

import pytest

from planners_tests.galvatron_recurrence import best, random_chain
from planners_tests.instances import LAYERS, candidate, planned, problem


@pytest.mark.longer
@pytest.mark.parametrize("seed", [0, 11, 12, 13, 18, 24])
def test_stages_recompute_as_many_layers_as_the_authors_recurrence_says(seed):
    written = random_chain(seed)
    seconds, _ = best(written)
    _, proposal, seen = planned("galvatron", written)
    assert any(":" in stage.recompute for stage in proposal.solution.stages)
    assert seen.admitted
    assert seen.priced.batch_time <= seconds * (1 + 1e-9)


@pytest.mark.longer
@pytest.mark.parametrize("seed", [11, 12, 24])
def test_stages_recompute_alike_where_they_must(seed):
    written = {**random_chain(seed), "constraints": ["uniform(recompute)", "pp >= 2"]}
    _, proposal, seen = planned("galvatron", written)
    assert seen.admitted
    assert len({stage.recompute for stage in proposal.solution.stages}) == 1
    assert ":" in proposal.solution.stages[0].recompute


@pytest.mark.longer
def test_degrees_are_powers_of_two_and_use_every_device():
    for memory in (1e12, 3e9):
        instance, proposal, seen = planned("galvatron", problem(memory, zero=(0, 3)))
        stages, width = proposal.solution.stages, instance.candidates[proposal.solution.stages[0].candidate].width
        assert seen.admitted
        assert len(stages).bit_count() == width.bit_count() == 1
        assert len(stages) * width * proposal.solution.replicas == instance.cluster.size
        assert {len(stage.layers) for stage in stages} == {LAYERS // len(stages)}


def test_only_stages_that_need_it_are_sharded():
    """The first of four stages holds four micro-batches, the last one: some need less than plain data parallelism."""
    tight = 4 * 1e8 * 2 + 5e8 * 2 - 4e8
    written = problem(tight, candidate(1), zero=(0, 3), constraints=["pp == 4"])
    written["profile"]["candidates"][0]["recompute"].pop("full")
    _, proposal, seen = planned("galvatron", written)
    zeros = [stage.zero for stage in proposal.solution.stages]
    assert seen.admitted
    assert zeros[0] == 3
    assert zeros[-1] == 0


def test_what_fits_nowhere_is_told():
    _, proposal, _ = planned("galvatron", problem(1e6))
    assert proposal.solution is None
    assert proposal.remarks
