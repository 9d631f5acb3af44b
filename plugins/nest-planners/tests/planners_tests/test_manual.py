"""Megatron-LM's rules: the ladder's first step that fits, and the sweep's fastest."""

import pytest

from planners_tests.instances import LAYERS, candidate, planned, problem

STATE = 5e8
"""Bytes a layer's state takes on one device."""


def shape(memory: float, *candidates, **keys):
    instance, proposal, seen = planned("manual-first", problem(memory, *candidates, **keys))
    assert seen.faults == ()
    stage = proposal.solution.stages[0]
    width = instance.candidates[stage.candidate].width
    return width, len(proposal.solution.stages), proposal.solution.replicas, stage.recompute, stage.zero, seen.admitted


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (1, (1, 1, 16, "none", 0, True)),
        (2, (2, 1, 8, "none", 0, True)),
        (4, (4, 1, 4, "none", 0, True)),
        (8, (4, 2, 2, "none", 0, True)),  # Blocks of 8 would leave the node.
        (16, (4, 4, 1, "none", 0, True)),
    ],
)
def test_tensor_parallelism_inside_the_node_then_stages_then_replicas(devices, expected):
    """Memory for the state on so many devices, with room for what one micro-batch keeps."""
    room = (STATE + 4 * 1e8) * LAYERS / devices
    assert shape(room) == expected


def test_the_sweep_begins_with_the_optimizer_sharded():
    _, proposal, seen = planned("manual", problem(1e12, candidate(1), candidate(4), zero=(0, 1)))
    assert seen.admitted
    assert {stage.zero for stage in proposal.solution.stages} == {1}


def test_recomputation_and_zero_come_only_where_nothing_else_fits():
    tight = STATE * LAYERS / 16 * 1.15
    assert shape(tight)[3:] == ("full", 0, True)
    tighter = STATE * LAYERS / 8 * 0.8
    wide = [candidate(4), candidate(8)]
    found = shape(tighter, *wide, zero=(0, 1), constraints=["pp <= 2", "width == 4"])
    assert found[4:] == (1, True)


def test_a_wider_block_than_a_node_is_the_last_resort():
    assert shape(1e12, candidate(8))[0] == 8


def test_degrees_that_are_asked_for_win_over_the_rules():
    """The rules would use a block of two for tensor parallelism, of four for that, too."""
    offered = [candidate(1, tp=1, cp=1), candidate(2, tp=2, cp=1), candidate(2, tp=1, cp=2), candidate(4, tp=2, cp=2)]
    for asked in ({"constraints": ["cp == 2"]}, {"fixed": {"cp": 2}}, {"constraints": ["width * cp == 4"]}):
        instance, proposal, seen = planned("manual-first", problem(1e12, *offered, **asked))
        assert seen is not None, proposal.remarks
        assert seen.admitted
        assert instance.candidates[proposal.solution.stages[0].candidate].degrees == {"tp": 1, "cp": 2}


def test_another_schedule_is_taken_where_the_first_does_not_fit():
    """GPipe keeps all 64 micro-batches; 1F1B no more than there are stages."""
    written = problem(4.6e8, candidate(4), constraints=["pp == 4"])
    for schedules, taken in ((["gpipe", "1f1b"], "1f1b"), (["nest", "1f1b"], "nest")):
        written["training"]["schedule"] = schedules
        _, proposal, seen = planned("manual-first", written)
        assert seen.admitted
        assert proposal.solution.schedule == taken
        assert proposal.solution.stages[0].recompute == "none"


def test_what_fits_nowhere_is_told_with_the_closest_plan():
    _, proposal, seen = planned("manual-first", problem(1e6))
    assert not seen.admitted
    assert seen.missing > 0
    assert "closest" in proposal.remarks[0]


def test_the_fastest_micro_batch_of_a_step_is_taken():
    slow, quick = candidate(1, samples=1), candidate(1, samples=2)
    quick["forward"] = [each / 4 for each in quick["forward"]]
    instance, proposal, _ = planned("manual-first", problem(1e12, slow, quick))
    assert instance.candidates[proposal.solution.stages[0].candidate].samples == 2


def test_no_plan_is_explained():
    _, proposal, _ = planned("manual-first", problem(1e12, constraints=["pp > 100"]))
    assert proposal.solution is None
    assert "pp > 100" in proposal.remarks[0]


@pytest.mark.longer
def test_the_sweep_takes_the_fastest_of_its_plans():
    """The ladder stops at the first copy that fits; another split is faster."""
    for memory in (1e12, 3e9, 2e9):
        written = problem(memory, zero=(0, 1))
        first, swept = (planned(name, written)[2] for name in ("manual-first", "manual"))
        assert swept.admitted
        assert swept.priced.batch_time <= first.priced.batch_time * (1 + 1e-9)
        stages = planned("manual", written)[1].solution.stages
        assert max(stage.zero for stage in stages) <= 1
        assert len({len(stage.layers) for stage in stages}) == 1


def test_the_sweep_goes_over_all_degrees_inside_the_node():
    """The rules use a block of four for tensor parallelism, which is slower than to spread experts."""
    slow, quick = candidate(4, tp=4, ep=1), candidate(4, tp=1, ep=4)
    quick["forward"] = [each / 2 for each in quick["forward"]]
    written = problem(1e12, slow, quick)
    degrees = {}
    for name in ("manual", "manual-first"):
        instance, proposal, _ = planned(name, written)
        degrees[name] = instance.candidates[proposal.solution.stages[0].candidate].degrees
    assert degrees == {"manual": quick["degrees"], "manual-first": slow["degrees"]}


@pytest.mark.longer
def test_the_sweep_shards_more_only_where_nothing_fits():
    """A single layer's state is too large for a device with the optimizer alone sharded."""
    written = problem(7e8, candidate(1), zero=(0, 1, 3), constraints=["pp == 2"])
    _, proposal, seen = planned("manual", written)
    assert seen.admitted
    assert proposal.solution.stages[0].zero == 3
    assert planned("manual", problem(1e6))[2].missing > 0


def test_the_sweep_leaves_no_device_idle():
    _, proposal, seen = planned("manual", problem(1e12, candidate(1), constraints=["pp >= 3"], zero=(0, 1)))
    assert seen.admitted
    assert len(proposal.solution.stages) * proposal.solution.replicas == 16
