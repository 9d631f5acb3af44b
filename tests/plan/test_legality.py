"""Which mixed plans are plans, what names in constraints mean for them, and layers no cut may part."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given

from nest.instance import Instance, Solution, StageDecision
from nest.plan.legality import permission_violations, structure_violations
from nest.spec.constraints import parse
from tests.plan.mixed_plans import mixed_plans
from tests.small_instances import candidate, cluster, instance


def problem(**space: Any) -> Instance:
    """Four layers; blocks of one device with `tp` 1, or of four with `tp` 2, on 28 devices in groups of 2 and 4."""
    candidates = [
        candidate(4, name="one", width=1, degrees={"tp": 1}),
        candidate(4, name="four", width=4, degrees={"tp": 2, "batch": 2}),
    ]
    return instance(candidates, machines=cluster((2, 2, 7)), **{"mixed": True, **space})


def plan(*rows: tuple[int, int]) -> Solution:
    """Two replicas, a layer a stage (the last takes what is left); a row is a candidate and an offset."""
    layers = [(index,) for index in range(len(rows) - 1)] + [tuple(range(len(rows) - 1, 4))]
    stages = (StageDecision(held, used, "none", 0, offset) for held, (used, offset) in zip(layers, rows, strict=True))
    return Solution(2, "dp-inner", "1f1b", tuple(stages))


MIXED = plan((0, 0), (0, 1), (1, 4), (0, 8))


@pytest.mark.longer
@given(mixed_plans())
def test_plans_of_section_3_break_no_rule(drawn: tuple[Instance, Solution]) -> None:
    assert structure_violations(*drawn) == []


def test_several_candidates_need_search_mixed() -> None:
    assert structure_violations(problem(), MIXED) == []
    (told,) = structure_violations(problem(mixed=False), MIXED)
    assert "search.mixed" in told
    assert structure_violations(problem(mixed=False), plan((1, 0), (1, 4))) == []


def test_all_stages_take_the_same_samples() -> None:
    whole = problem()
    one, four = whole.candidates
    (told,) = structure_violations(evolve(whole, candidates=(one, evolve(four, samples=2))), MIXED)
    assert "1, 2 samples" in told


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        # Two replicas of 28 devices have 14 each for blocks of one, 12 with a block of four.
        ([(1, 0), (0, 12)], "needs devices up to 13, but a replica has 12"),
        ([(0, 0), (1, 2)], "offset 2 is not a multiple of its width 4"),
        ([(1, 0), (0, 3)], "overlaps or precedes"),
        ([(0, 8), (1, 4)], "overlaps or precedes"),
    ],
)
def test_blocks_of_any_width_are_aligned_apart_and_inside(rows: list[tuple[int, int]], told: str) -> None:
    (found,) = structure_violations(problem(), plan(*rows))
    assert told in found


def test_a_replica_of_narrow_blocks_is_larger() -> None:
    assert structure_violations(problem(), plan((0, 0), (0, 13))) == []


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("tp in [1, 2]", True),
        ("tp == 1", False),
        ("tp == 2", False),
        ("width <= 4", True),
        ("width >= 4", False),
        ("batch <= 2", True),
        ("batch == 2", False),
        ("dp in [2, 4]", True),
        ("dp == 2", False),
        ("dp == 2 * batch and tp * batch == width", True),
        ("devices == 2 * (1 + 1 + 4 + 1)", True),
        ("devices == 2 * 4 * 4", False),
        ("pp == 4 and replicas == 2 and micro_batch == 1 and micro_batches == 4", True),
        ("zero == 0 and recompute == 'none' and rank_order == 'dp-inner' and schedule == '1f1b'", True),
        ("uniform(zero)", True),
        ("same_stage('l2', 'l3')", False),
    ],
)
def test_names_that_follow_from_a_candidate_are_each_stage_s_own(text: str, holds: bool) -> None:
    found = permission_violations(problem(constraints=[text]), MIXED)
    assert found == ([] if holds else [f"constraint `{parse(text).text}` does not hold"])


def test_what_must_be_uniform_may_not_differ() -> None:
    first, *others = MIXED.stages
    for name, other in (("zero", 1), ("recompute", "full")):
        differing = evolve(MIXED, stages=(evolve(first, **{name: other}), *others))
        (told,) = permission_violations(problem(constraints=["uniform(zero)", "uniform(recompute)"]), differing)
        assert f"uniform({name})" in told


def test_no_layer_runs_in_front_of_what_it_reads() -> None:
    one, two, *others = MIXED.stages
    swapped = (evolve(one, layers=two.layers), evolve(two, layers=one.layers), *others)
    (told,) = structure_violations(problem(), evolve(MIXED, stages=swapped))
    assert "'l1' runs in an earlier stage than 'l0'" in told


def test_conditions_across_names_hold_on_every_stage_by_itself() -> None:
    """No stage has both the width and the degrees of another."""
    together = problem(constraints=["(tp == 1 and width == 1) or (tp == 2 and width == 4)"])
    assert permission_violations(together, MIXED) == []
    crossed = problem(constraints=["not (tp == 1 and width == 1)"])
    assert len(permission_violations(crossed, MIXED)) == 1


def test_layers_that_stay_together_are_named_where_they_do_not() -> None:
    two = plan((0, 0), (1, 4))  # l0 | l1 l2 l3
    assert permission_violations(problem(together=((1, 2), (3,))), two) == []
    (told,) = permission_violations(problem(together=((1, 2), (0, 1))), two)
    assert "'l0'" in told
    assert "'l1'" in told
    assert structure_violations(problem(together=((0, 1),)), two) == []
