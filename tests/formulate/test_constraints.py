"""What `constraints`, `fixed` and `search` become."""

from collections.abc import Callable
from typing import Any

import pytest

from nest.catalogue import device
from nest.errors import InputError, InputErrors
from nest.formulate.instance import build_instance, formulate
from nest.formulate.space import FEW_CHUNKS
from nest.hooks.registry import registry
from nest.instance import Space, chunks_of
from nest.spec import (
    ClusterSpec,
    LevelSpec,
    Overlap,
    Problem,
    ProfileCandidate,
    ProfileRecompute,
    ProfileSpec,
    Search,
    Training,
    TransformerSpec,
)

Build = Callable[..., Problem]
EXPERTS = TransformerSpec(layers=2, hidden=64, ffn=128, heads=8, vocab=500, experts=4, top_k=2)

SHOWN = device("a100-sxm-80g").calibration.data_exposed
"""The least that shows of data-parallel communication on the device of these problems."""


def space(problem: Problem) -> Space:
    return build_instance(problem, registry()).space


def test_defaults_leave_everything_open(problem: Build) -> None:
    found = space(problem())
    assert [schedule.name for schedule in found.schedules] == ["1f1b"]
    assert found.rank_orders == ("pp-inner", "dp-inner")
    assert found.zero == (0, 1, 2, 3)
    assert found.recompute is None
    assert found.constraints == ()
    assert found.partition is None
    assert (found.global_batch, found.uneven_batch, found.exposed) == (16, False, 1.0)


@pytest.mark.parametrize(
    ("training", "exposed", "hiding"),
    [
        ({}, 1.0, False),
        ({"overlap": Overlap(data=True)}, SHOWN, True),
        ({"overlap": Overlap(data=True), "exposed": 0.2}, 0.2, False),
        ({"overlap": Overlap(data=True), "exposed": 0.2, "hiding": True}, 0.2, True),
        ({"overlap": Overlap(data=True), "hiding": False}, SHOWN, False),
    ],
)
def test_overlap_of_a_model_hides_what_fits_unless_a_share_is_given(
    problem: Build, training: dict[str, Any], exposed: float, hiding: bool
) -> None:
    found = space(problem(training=training))
    assert (found.exposed, found.hiding) == (exposed, hiding)


@pytest.mark.parametrize("hiding", [None, True])
def test_a_profile_keeps_the_constant_unless_it_asks(hiding: bool | None) -> None:
    training = Training(global_batch=4, overlap=Overlap(data=True), hiding=hiding)
    nothing = ProfileRecompute(extra=(0.0,), first=(0.0,), more=(0.0,), peak=(0.0,))
    one = ProfileCandidate("one", 1, 1, (1.0,), (2.0,), {}, {"none": nothing}, ())
    profile = ProfileSpec(layers=("one",), edges=(), candidates=(one,))
    cluster = ClusterSpec(levels=(LevelSpec(fanout=2, bandwidth=1e9, latency=0.0),), memory=1e9)
    found = space(Problem(nest=1, training=training, cluster=cluster, profile=profile))
    assert (found.exposed, found.hiding) == (0.0, bool(hiding))


def test_search_restricts(problem: Build) -> None:
    found = space(
        problem(
            training={"schedule": ("gpipe", "1f1b", "gpipe")},
            search=Search(rank_order=("dp-inner",), zero=(1, 1), recompute=("full",)),
        )
    )
    assert [schedule.name for schedule in found.schedules] == ["gpipe", "1f1b"]
    assert found.rank_orders == ("dp-inner",)
    assert found.zero == (1,)
    assert found.recompute == ("full",)


def test_decisions_win_over_the_search(problem: Build) -> None:
    fixed = {"schedule": "nest", "rank_order": "pp-inner", "zero": 2, "recompute": "selective"}
    found = space(problem(fixed=fixed, search=Search(rank_order=("dp-inner",), zero=(1,), recompute=("full",))))
    assert [schedule.name for schedule in found.schedules] == ["nest"]
    assert (found.rank_orders, found.zero, found.recompute) == (("pp-inner",), (2,), ("selective",))
    assert found.constraints == ()


@pytest.mark.parametrize(
    ("fixed", "values", "holds"),
    [
        ({"pp": 4}, {"pp": 4}, True),
        ({"pp": 4}, {"pp": 2}, False),
        ({"dp": 2, "replicas": 2}, {"dp": 2, "replicas": 2}, True),
        ({"tp": 2, "sp": True}, {"tp": 2, "sp": 2}, True),
        ({"tp": 2, "sp": True}, {"tp": 2, "sp": 1}, False),
        ({"sp": True}, {"tp": 1, "sp": 1}, True),
        ({"tp": 2, "sp": False}, {"tp": 2, "sp": 1}, True),
        ({"tp": 2, "sp": False}, {"tp": 2, "sp": 2}, False),
        ({"cp": 1}, {"cp": 1}, True),
    ],
)
def test_decisions_become_conditions(
    problem: Build, fixed: dict[str, Any], values: dict[str, Any], holds: bool
) -> None:
    found = space(problem(fixed=fixed))
    assert len(found.constraints) == len(fixed)
    assert all(constraint.holds(values) for constraint in found.constraints) is holds


def test_constraints_are_compiled(problem: Build) -> None:
    texts = ("tp * cp <= 8", "dp % 4 == 0", "uniform(zero)", 'same_stage("embedding", "head")', "ep == 1")
    assert [constraint.text for constraint in space(problem(constraints=texts)).constraints] == list(texts)


def test_what_is_the_only_way_so_far_is_accepted(problem: Build) -> None:
    assert space(problem(fixed={"etp": 1})).constraints == ()


@pytest.mark.parametrize("blocks", [4, 12])
def test_a_schedule_of_chunks_is_one_for_every_number_of_chunks_that_comes_out_even_or_is_small(
    blocks: int, problem: Build
) -> None:
    model = TransformerSpec(layers=blocks, hidden=64, ffn=128, heads=8, vocab=500)
    asked = problem(model, training={"schedule": ("interleaved", "1f1b")})
    assert len(space(asked).blocks) == blocks
    found = [(each.name, chunks_of(each)) for each in space(asked).schedules]
    assert len(space(asked).blocks_and_ends) == blocks + 2
    counts, numbers = range(2, blocks), (blocks, blocks + 2)
    even = [
        chunks for chunks in counts if any(number % (chunks * stages) == 0 for stages in counts for number in numbers)
    ]
    assert len(even) > 0
    tried = sorted({*even, *range(2, min(FEW_CHUNKS, (blocks + 2) // 2) + 1)})
    assert found == [*(("interleaved", chunks) for chunks in tried), ("1f1b", 1)]


def test_fixed_chunks_are_the_only_ones(problem: Build) -> None:
    found = space(problem(training={"schedule": ("interleaved",)}, fixed={"chunks": 3}))
    assert [chunks_of(each) for each in found.schedules] == [3]
    (constraint,) = found.constraints
    assert constraint.holds({"chunks": 3})
    assert not constraint.holds({"chunks": 1})


def test_blocks_are_layers_in_order_with_the_ends_joined_to_them(problem: Build) -> None:
    asked = problem()
    graph = formulate(asked, registry())[0].graph
    blocks = space(asked).blocks
    assert [layer for block in blocks for layer in block] == list(graph.topological_order())
    assert (graph.layers[blocks[0][0]], graph.layers[blocks[-1][-1]]) == ("embedding", "head")
    assert [len(block) for block in blocks] == [2, *[1] * (len(blocks) - 2), 2]


def test_shard_groups_are_all_ranks_first_and_then_as_listed(problem: Build) -> None:
    assert space(problem()).zero_degrees == (None,)
    assert space(problem(search=Search(zero_degree=(16, "all", 8, 16)))).zero_degrees == (None, 16, 8)
    assert space(problem(search=Search(zero_degree=(16, 8)))).zero_degrees == (16, 8)
    assert space(problem(search=Search(zero_degree=(16,)), fixed={"zero_degree": 4})).zero_degrees == (4,)
    assert space(problem(search=Search(zero_degree=(16,)), fixed={"zero_degree": "all"})).zero_degrees == (None,)
    assert space(problem(fixed={"zero_degree": 4})).constraints == ()


def test_a_degree_for_experts_asks_for_experts(problem: Build) -> None:
    (constraint,) = space(problem(EXPERTS, fixed={"etp": 2})).constraints
    assert constraint.holds({"etp": 2})
    assert not constraint.holds({"etp": 4})
    assert space(problem(fixed={"etp": 2})).constraints == ()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"constraints": ("tpp <= 8",)}, r"constraints\[0\] \(`tpp <= 8`\): .*'tp'"),
        ({"constraints": ("pp < 4", "tp +* 2")}, r"tp \+\* 2"),
        ({"constraints": ('same_stage("embeding", "head")',)}, r"constraints\[0\].*'embedding'"),
        ({"fixed": {"ppp": 4}}, r"fixed: .*'ppp'.*'pp'"),
        ({"fixed": {"pp": 0}}, r"fixed.pp is 0"),
        ({"fixed": {"pp": True}}, r"fixed.pp is True"),
        ({"fixed": {"zero": 4}}, r"fixed.zero is 4"),
        ({"fixed": {"schedule": "1f2b"}}, r"fixed.schedule: .*'1f1b'"),
        ({"training": {"schedule": ("interleavd",)}}, r"training.schedule: .*'interleaved'"),
        ({"fixed": {"rank_order": "tp-inner"}}, r"fixed.rank_order: .*pp-inner"),
        ({"fixed": {"recompute": "ful"}}, r"fixed.recompute: .*'full'"),
        ({"search": Search(recompute=("some",))}, r"search.recompute: .*'some'"),
        ({"fixed": {"zero_degree": 0}}, r"fixed.zero_degree is 0"),
        ({"fixed": {"zero_degree": "some"}}, r"fixed.zero_degree is 'some'.*or all"),
    ],
)
def test_what_cannot_be_is_named(problem: Build, asked: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        space(problem(**asked))


def test_all_mistakes_are_told_at_once(problem: Build) -> None:
    with pytest.raises(InputErrors) as error:
        space(problem(constraints=("tpp == 1", "dp >"), fixed={"pp": -1, "chunks": -3, "zero": 9}))
    assert len(error.value.problems) == 5
