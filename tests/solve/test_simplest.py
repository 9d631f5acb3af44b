"""Plans whose stages are alike, where they are as fast or nearly so."""

from typing import Any

import pytest
from attrs import evolve

from nest import api
from nest.instance import Instance, Result, Solution, StageDecision
from nest.report.text.summary import summary
from nest.solve.dp.solver import simplest
from nest.tolerances import AGREEMENT
from tests.small_instances import candidate, instance

SIMPLER = 1e-3

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": "llama-2-13b",
    "training": {
        "global_batch": 128,
        "sequence_length": 4096,
        "micro_batch": [1],
        "schedule": "1f1b",
        "stack": "none",
    },
    "cluster": {
        "device": "a100-sxm-80g",
        "memory": "40 GB",
        "levels": [
            {"name": "node", "fanout": 8, "bandwidth": "300 GB/s", "link": "nvlink3"},
            {"name": "pod", "fanout": 4, "bandwidth": "25 GB/s", "link": "infiniband-hdr"},
        ],
        "reserve": "2 GiB",
    },
    "strategies": {"tp": [2], "sp": [False], "cp": [1]},
    "constraints": ["pp == 4"],
}


def test_the_simplest_plan_is_within_a_thousandth_of_the_fastest_and_says_so() -> None:
    fastest, simple = (api.solve({**PROBLEM, "search": {"prefer": name}}) for name in ("fastest", "simplest"))
    assert {stage.zero for stage in fastest.stages} == {0, 1}
    assert fastest.status == "optimal"
    assert fastest.runs_on == ()
    assert {stage.zero for stage in simple.stages} == {1}
    assert "megatron" in (simple.runs_on or ())
    assert fastest.batch_time is not None
    assert simple.batch_time is not None
    assert fastest.batch_time * (1 + AGREEMENT) < simple.batch_time <= fastest.batch_time * (1 + SIMPLER)
    assert (simple.status, simple.lower_bound) == ("feasible", fastest.batch_time)
    assert api.check(simple).ok
    assert summary(simple).startswith("Simplest plan within 0.1% of the best: ")


STAGES = tuple(StageDecision((layer,), 0, "none", zero, layer) for layer, zero in ((0, 0), (1, 1)))
MIXED = Solution(1, "pp-inner", "1f1b", STAGES)
ALIKE = evolve(MIXED, stages=tuple(evolve(stage, zero=1) for stage in STAGES))
WIDER = evolve(ALIKE, replicas=2)


@pytest.mark.parametrize(
    ("other", "slower", "within", "expected"),
    [
        (ALIKE, 0.0, AGREEMENT, ("optimal", ALIKE)),
        (ALIKE, 1e-4, AGREEMENT, ("optimal", MIXED)),
        (ALIKE, 1e-4, SIMPLER, ("feasible", ALIKE)),
        (WIDER, 0.0, SIMPLER, ("optimal", MIXED)),  # Fewer devices come first.
    ],
)
def test_a_simpler_plan_takes_no_more_time_than_allowed_and_no_more_devices(
    other: Solution, slower: float, within: float, expected: tuple[str, Solution]
) -> None:
    def search(narrowed: Instance, best: tuple[Solution, float]) -> Result:
        assert {each.uniform for each in narrowed.space.constraints} == {"zero", "recompute"}
        found = 1 + slower
        return Result("optimal", *((other, found) if found < best[1] else best))

    result = simplest(instance([candidate(2)]), Result("optimal", MIXED, 1.0), search, within)
    assert (result.status, result.solution) == expected


def test_even_chunks_are_simpler_than_uneven_ones() -> None:
    uneven = evolve(ALIKE, stages=tuple(map(_in_chunks, ALIKE.stages, (((0, 1), (4,)), ((2, 3), (5,))))), chunks=2)
    blocks = tuple((layer,) for layer in range(6))
    problem = instance([candidate(6)], blocks=blocks)
    asked: list[Instance] = []

    def search(narrowed: Instance, best: tuple[Solution, float]) -> Result:
        asked.append(narrowed)
        return Result("optimal", *best)

    simplest(problem, Result("optimal", uneven, 1.0), search, SIMPLER)
    assert [each.space.even for each in asked] == [True]


def _in_chunks(stage: StageDecision, chunks: tuple[tuple[int, ...], ...]) -> StageDecision:
    return evolve(stage, layers=sum(chunks, ()), chunks=chunks)


def test_a_plan_whose_stages_are_alike_is_left_alone() -> None:
    def search(narrowed: Instance, best: tuple[Solution, float]) -> Result:
        raise AssertionError

    result = Result("optimal", ALIKE, 1.0)
    assert simplest(instance([candidate(2)]), result, search, SIMPLER) is result
