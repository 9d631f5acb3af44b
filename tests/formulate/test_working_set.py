"""What lives only while one operator runs."""

from typing import Any

import pytest

from nest.formulate.instance import build_instance
from nest.formulate.memory import collective_bytes, working_sets
from nest.formulate.operator_costs import PricedOperator
from nest.formulate.shard import ShardedGraphs
from nest.graph import Collective, Communication, Operator, Tensor
from nest.hooks.protocols import OperatorCost, StrategyContext
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.spec import Search, Training, TransformerSpec

TOKENS, HIDDEN, HEADS, KV = 1024, 64, 8, 4
MODEL = TransformerSpec(layers=2, hidden=HIDDEN, ffn=96, heads=HEADS, kv_heads=KV, vocab=512)
STREAM = TOKENS * HIDDEN * 2
"""Bytes of the stream of one sample."""

KEYS_AND_VALUES = 2 * TOKENS * KV * (HIDDEN // HEADS) * 2


def working(exchange: str = "ring", **degrees: int) -> dict[str, Any]:
    """The working sets of the first block, by operator, and each of its operators."""
    training = Training(global_batch=1, sequence_length=TOKENS, context_exchange=exchange)
    graph = registry().model_importers()["transformer"].load(MODEL, training)
    known = {name: each for name, each in registry().strategies().items() if name in ("tp", "sp", "cp")}
    context = StrategyContext(Cluster((Level("node", 8, 1e11, 0.0),), 1e9), training)
    block = next(
        each
        for each in ShardedGraphs(graph, known, {}, (1,), context).every()
        if all(each.degree(name) == degrees.get(name, 1) for name in known)
    )
    rows = [PricedOperator(each, OperatorCost(0.0, 0.0), 0.0, 0.0) for each in block.graph.by_layer[1]]
    return {name.removeprefix("layers.0/"): found for name, found in working_sets(rows).items()}


@pytest.mark.longer
def test_split_operators_have_what_sequence_parallelism_gathers_for_them() -> None:
    found = working(tp=4, sp=4)
    assert found["query"].buffers == found["key_value"].buffers == found["mlp_up"].buffers == STREAM
    assert found["mlp_down"].buffers == found["attention_norm"].buffers == 0
    gathers = [each.buffers for name, each in found.items() if ".gather of" in name]
    assert gathers == [STREAM + STREAM / 4] * 2


def test_sums_of_tensor_parallelism_work_in_place() -> None:
    found = working(tp=4)
    sums = [each.buffers for name, each in found.items() if ".sum of" in name or ".gradient of" in name]
    assert sums == [STREAM] * len(sums)
    assert found["query"].buffers == 0


def test_attention_has_the_keys_and_values_of_all_ranks_or_those_on_their_way() -> None:
    share = KEYS_AND_VALUES / 4
    assert working("all_gather", cp=4)["attention"].buffers == KEYS_AND_VALUES
    # The next share, and backward its gradients beside it.
    assert working("ring", cp=4)["attention"].buffers == 2 * share
    assert working("ring")["attention"].buffers == 0


@pytest.mark.parametrize(("kind", "buffers"), [("all_reduce", 40.0), ("all_to_all", 80.0), ("reduce_scatter", 80.0)])
def test_other_collectives_have_their_operands_and_results(kind: str, buffers: float) -> None:
    """Whatever a strategy calls them."""
    there, here = (Tensor(name, (("sequence", 20),), 2.0) for name in ("there", "here"))
    calls = (Communication(kind, 40.0, "mine"),)
    operator = Operator(
        "exchange", "layer", "collective", inputs=(there,), outputs=(here,), collective=Collective(calls)
    )
    assert collective_bytes(operator) == buffers


def test_the_largest_working_set_of_a_stage_s_layers_is_its_transient(problem: Any) -> None:
    """Compute and collectives alike: the peak of a layer is that of the operator which has most."""
    from nest.formulate.memory import BOUNDARY_BUFFERS

    decided = problem(
        MODEL,
        training={"micro_batch": (1,), "sequence_length": TOKENS},
        strategies={"tp": (4,), "sp": (4,), "cp": (1,)},
        search=Search(zero=(0,)),
    )
    (candidate,) = build_instance(decided, registry()).candidates
    mode = candidate.mode("none")
    assert mode.overheads.buffers is not None
    at_boundaries = BOUNDARY_BUFFERS * STREAM / 4
    # Of the up projection: gradients of the gathered stream and of both branches, and the stream gathered again.
    gradients = STREAM + 2 * TOKENS * 96 * 2 / 4
    assert mode.overheads.buffers[1] == STREAM + at_boundaries
    assert mode.peak[1] == gradients + STREAM + at_boundaries
