"""What hides and how tokens travel, as flags of Megatron-LM."""

from typing import Any

import pytest

import nest
from nest.errors import InputErrors
from nest.hooks.registry import registry
from tests.conformance.plans import DENSE_MODEL, EXPERT_MODEL, problem

WIDE = {"tp": 8, "sp": True, "dp": 2, "zero": 1}


def flags(asked: dict[str, Any], node: int = 8) -> str:
    """`megatron_flags.sh` of a plan on nodes of so many devices, 16 in all."""
    inner, outer = asked["cluster"]["levels"]
    levels = [{**inner, "fanout": node}, {**outer, "fanout": 16 // node}]
    plan = nest.evaluate({**asked, "cluster": {**asked["cluster"], "levels": levels}})
    return registry().exporters()["megatron"].export(plan)["megatron_flags.sh"]


@pytest.mark.parametrize(("node", "inside"), [(8, True), (4, False)])
def test_tensor_parallelism_overlaps_inside_the_scale_up_network(node: int, inside: bool) -> None:
    text = flags(problem({**DENSE_MODEL, "kv_heads": 8}, {}, WIDE), node)
    assert ("  --tp-comm-overlap\n" in text) is inside
    assert ("# --tp-comm-overlap is left out: it works among the 4 devices" in text) is not inside
    assert "--tp-comm-overlap" not in flags(problem(DENSE_MODEL, {"stack": "megatron-lm"}, WIDE), node)


@pytest.mark.longer
def test_experts_overlap_by_a_switch_of_their_own() -> None:
    fixed = {"tp": 2, "sp": True, "ep": 4, "etp": 1, "dp": 8, "zero": 1}
    assert "--overlap-moe-expert-parallel-comm" not in flags(problem(EXPERT_MODEL, {}, fixed))
    asked = problem(EXPERT_MODEL, {"overlap": {"experts": True, "tensor": False}}, fixed)
    text = flags(asked)
    assert "--overlap-moe-expert-parallel-comm" in text
    assert "--tp-comm-overlap" not in text


@pytest.mark.longer
@pytest.mark.parametrize(
    ("training", "fixed", "dispatcher"),
    [
        ({}, {"ep": 4, "etp": 1}, "flex\n  --moe-flex-dispatcher-backend hybridep"),
        ({}, {"ep": 1, "etp": 1}, "alltoall"),
        ({"dispatch": "all-to-all"}, {"ep": 4, "etp": 1}, "alltoall"),
        ({"stack": "none"}, {"ep": 4, "etp": 1}, "alltoall"),
    ],
)
def test_tokens_are_dispatched_as_the_training_says(
    training: dict[str, Any], fixed: dict[str, Any], dispatcher: str
) -> None:
    text = flags(problem(EXPERT_MODEL, training, {"tp": 2, "sp": True, "dp": 8, "zero": 1, **fixed}))
    assert f"--moe-token-dispatcher-type {dispatcher}\n" in text
    assert ("needs HybridEP" in text) == ("hybridep" in dispatcher)  # Which no stock Megatron-LM has.
    exporter: Any = registry().exporters()["megatron"]
    assert bool(exporter.needs({"megatron_flags.sh": text})) == ("hybridep" in dispatcher)  # A note as well.


def test_a_dense_model_has_no_dispatcher() -> None:
    assert "--moe-token-dispatcher-type" not in flags(problem(DENSE_MODEL, {}, WIDE))


@pytest.mark.longer
def test_without_sequence_parallelism_nothing_of_tensor_parallelism_can_hide() -> None:
    with pytest.raises(InputErrors, match=r"only with sequence parallelism; give that, or say overlap\.tensor: false"):
        flags(problem(DENSE_MODEL, {}, {"tp": 2, "dp": 8, "zero": 1}))
    assert "--tp-comm-overlap" not in flags(
        problem(DENSE_MODEL, {"overlap": {"tensor": False}}, {"tp": 2, "dp": 8, "zero": 1})
    )
