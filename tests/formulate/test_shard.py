"""Which combinations of degrees and micro-batch sizes come up, and what is said when none does."""

from collections.abc import Callable
from typing import Any

import pytest

from nest.errors import InputError
from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Candidate
from nest.spec import LevelSpec, Problem, TransformerSpec

Build = Callable[..., Problem]
EXPERTS = TransformerSpec(layers=2, hidden=64, ffn=128, heads=8, vocab=500, experts=4, top_k=2, moe_ffn=32)


def degrees(problem: Problem) -> list[tuple[int, ...]]:
    """Micro-batch, tp and sp of every candidate, in order."""
    return [(c.samples, c.degrees["tp"], c.degrees["sp"]) for c in candidates(problem)]


def candidates(problem: Problem) -> tuple[Candidate, ...]:
    return build_instance(problem, registry()).candidates


@pytest.mark.longer
def test_every_combination_comes_up_once(problem: Build) -> None:
    expected = [(m, t, s) for m in (1, 2) for t in (1, 2, 4, 8) for s in sorted({1, t})]
    found = candidates(problem())
    assert degrees(problem()) == expected
    assert len({each.name for each in found}) == len(found)
    assert all(each.width == each.degrees["tp"] for each in found)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"strategies": {"tp": (2, 16)}}, [(2, 1), (2, 2)]),
        ({"strategies": {"tp": (4,), "sp": (True,)}}, [(4, 4)]),
        ({"strategies": {"sp": (False,)}}, [(1, 1), (2, 1), (4, 1), (8, 1)]),
        ({"strategies": {"sp": (True,)}}, [(1, 1), (2, 2), (4, 4), (8, 8)]),
        ({"strategies": {"tp": (2, 4)}, "fixed": {"tp": 8, "sp": 8}}, [(8, 8)]),
        ({"fixed": {"tp": 1, "sp": True}}, [(1, 1)]),
        ({"strategies": {"tp": (True,), "sp": (1,), "cp": (1,), "ep": (1,)}}, [(8, 1)]),
    ],
)
def test_the_problem_restricts(problem: Build, asked: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    made = problem(training={"micro_batch": (1,)}, **asked)
    assert [pair[1:] for pair in degrees(made)] == expected


@pytest.mark.parametrize(
    ("training", "fixed", "expected"),
    [
        ({"micro_batch": (4, 1)}, {}, [1, 4]),
        ({"micro_batch": None}, {}, [1, 2, 4, 8]),
        ({"micro_batch": None, "global_batch": 3}, {}, [1]),
        ({"micro_batch": None, "global_batch": 3, "uneven_batch": True}, {}, [1, 2]),
        ({"micro_batch": (1, 2)}, {"micro_batch": 8}, [8]),
        ({"micro_batch": (1, 3)}, {}, [1]),
    ],
)
def test_micro_batches(problem: Build, training: dict[str, Any], fixed: dict[str, Any], expected: list[int]) -> None:
    made = problem(training=training, fixed={"tp": 1, **fixed})
    assert [each.samples for each in candidates(made)] == expected


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"strategies": {"tpp": (2,)}}, r"strategies: .*'tpp'.*'tp'"),
        ({"strategies": {"cp": (7,)}}, r"strategies.cp allows 7, but .* only allow cp 1, 2, 4, 8"),
        ({"fixed": {"ep": 4}}, r"fixed.ep allows 4, but .* only allow ep 1"),
        ({"fixed": {"tp": 3}}, r"fixed.tp allows 3, but .* only allow tp 1, 2, 4, 8"),
        ({"fixed": {"tp": 0}}, r"fixed.tp is 0"),
        ({"fixed": {"tp": "two"}}, r"fixed.tp is 'two'"),
        ({"strategies": {"sp": (4,)}, "fixed": {"tp": 2}}, r"strategies.sp allows 4, but .* only allow sp 1, 2"),
        ({"fixed": {"micro_batch": 32}}, r"fixed.micro_batch is 32; .*global_batch \(16\)"),
        ({"fixed": {"micro_batch": 0}}, r"fixed.micro_batch is 0"),
        ({"fixed": {"micro_batch": True}}, r"fixed.micro_batch is True"),
        ({"training": {"micro_batch": (3, 5)}}, r"training.micro_batch: none of 3, 5 divides"),
        ({"training": {"selective": ("atention",)}}, r"training.selective: .*'attention'"),
        ({"training": {"optimizer": "adm"}}, r"training.optimizer: .*'adam'"),
        ({"costs": "rooflin"}, r"costs: .*'roofline'"),
        ({"collectives": "beta"}, r"collectives: .*'alpha-beta'|collectives: .*Known: alpha-beta"),
    ],
)
def test_what_cannot_be_is_named(problem: Build, asked: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        build_instance(problem(**asked), registry())


def test_a_cluster_that_cannot_be_tiled_restricts_the_degrees(problem: Build) -> None:
    thirds = (LevelSpec(fanout=3, bandwidth=1e9), LevelSpec(fanout=4, bandwidth=1e9))  # type: ignore[arg-type]
    assert {t for _, t, _ in degrees(problem(cluster={"levels": thirds}))} == {1}


@pytest.mark.longer
def test_degrees_of_experts_restrict_wherever_there_are_experts(problem: Build) -> None:
    """Sixteen devices have no room for `ep` 4 times `etp` 8, and experts of width 32 no third of it."""
    experts = problem(EXPERTS, training={"micro_batch": (1,)}, strategies={"etp": (8,)})
    assert {c.degrees["etp"] for c in candidates(experts)} == {8}
    with pytest.raises(InputError, match=r"strategies.etp allows 3, but .* only allow etp 1, 2, 4, 8, 16"):
        candidates(problem(EXPERTS, training={"micro_batch": (1,)}, strategies={"etp": (3,)}))
    with pytest.raises(InputError, match=r"fixed.etp allows 3, but"):
        candidates(problem(EXPERTS, fixed={"etp": 3}))


@pytest.mark.longer
def test_degrees_of_experts_say_nothing_where_there_are_none(problem: Build) -> None:
    assert {c.degrees["etp"] for c in candidates(problem(strategies={"etp": (3,)}))} == {1}
    assert {c.degrees["etp"] for c in candidates(problem(fixed={"etp": 8}))} == {1}
