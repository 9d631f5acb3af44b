"""Descriptions of models agree with closed forms and with themselves."""

from math import isclose

import pytest

from nest.formulate.model import describe
from nest.graph import OperatorGraph
from nest.hooks.registry import registry
from nest.spec import Training, TransformerSpec

DENSE = TransformerSpec(layers=3, hidden=24, ffn=40, heads=6, kv_heads=2, vocab=96)
SPARSE = TransformerSpec(
    layers=4, hidden=24, ffn=40, heads=6, vocab=96, tied_embeddings=True, experts=8, top_k=3, moe_ffn=7,
    shared_expert_ffn=14, dense_layers=1,
)  # fmt: skip
SEQUENCE = 32
TRAINING = Training(global_batch=1, sequence_length=SEQUENCE)


def graph_of(spec: TransformerSpec, training: Training = TRAINING) -> OperatorGraph:
    return registry().model_importers()["transformer"].load(spec, training)


@pytest.fixture(params=[DENSE, SPARSE], ids=["dense", "sparse"])
def graph(request):
    return graph_of(request.param)


def test_totals_are_the_sums_of_the_layers(graph):
    described = describe(graph, TRAINING)
    runs = described["layer_runs"]
    for key in ("parameters", "active_parameters", "routed_expert_parameters"):
        assert described[key] == sum(run["count"] * run[key] for run in runs)
    assert isclose(described["flops_per_token"], sum(run["count"] * run["flops_per_token"] for run in runs))
    assert described["layers"] == sum(run["count"] for run in runs if run["block"])
    assert described["parameters"] == graph.parameter_count


def test_equal_layers_are_put_together():
    runs = describe(graph_of(SPARSE), TRAINING)["layer_runs"]
    assert [(run["first"], run["last"], run["count"], run["block"]) for run in runs] == [
        ("embedding", "embedding", 1, False),
        ("layers.0", "layers.0", 1, True),
        ("layers.1", "layers.3", 3, True),
        ("head", "head", 1, False),
    ]


def test_active_parameters_count_visited_experts_only():
    described = describe(graph_of(SPARSE), TRAINING)
    one_expert = 3 * 24 * 7
    assert described["routed_expert_parameters"] == 3 * 8 * one_expert
    assert described["parameters"] - described["active_parameters"] == 3 * (8 - 3) * one_expert


@pytest.mark.parametrize(("spec", "head"), [(DENSE, 96 * 24), (SPARSE, 0)])
def test_a_tied_head_has_no_parameters_of_its_own(spec, head):
    described = describe(graph_of(spec), TRAINING)
    assert described["input_embedding_parameters"] == 96 * 24
    assert described["lm_head_parameters"] == head
    assert described["tied_embeddings"] == spec.tied_embeddings


@pytest.mark.parametrize("attention", ["flash", "unfused"])
def test_flops_follow_palm(attention):
    training = Training(global_batch=1, sequence_length=SEQUENCE, attention=attention)
    described = describe(graph_of(DENSE, training), training)
    weights = 3 * (2 * 24 * 24 + 2 * 24 * 8 + 3 * 24 * 40) + 96 * 24
    assert isclose(described["flops_per_token"], 2 * weights + 3 * 4 * 6 * 4 * SEQUENCE)
    executed = SEQUENCE if attention == "unfused" else (SEQUENCE + 1) / 2
    assert isclose(described["executed_flops_per_token"], 2 * weights + 3 * 4 * 6 * 4 * executed)
