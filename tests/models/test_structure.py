"""Graphs have the shape strategies rely on."""

import re
from importlib import import_module

import networkx
import pytest

import nest.graph
from nest.graph import axis_size
from nest.models import Family, nest_model_importers

DOCUMENTED = set(re.findall(r"`(\w+)`", re.split(r"\| axis", nest.graph.__doc__ or "")[1]))


@pytest.fixture(params=["flash", "unfused"])
def graph(request, small, load):
    return load(small.config, attention=request.param)


def test_the_graph_is_acyclic_and_in_one_piece(graph):
    network = graph.to_networkx()
    assert networkx.is_directed_acyclic_graph(network)
    assert networkx.is_weakly_connected(network)
    assert set(networkx.ancestors(network, "head/loss")) == set(network) - {"head/loss"}


def test_layers_are_embedding_blocks_head(graph):
    assert graph.layers == ("embedding", *graph.blocks, "head")
    assert graph.blocks == tuple(f"layers.{index}" for index in range(len(graph.blocks)))
    assert all(graph.by_layer)


def test_one_hidden_tensor_passes_from_layer_to_layer(graph):
    shapes = set()
    for index, crossing in enumerate(graph.layer_tensors):
        assert (crossing.producer, crossing.consumers) == (index, (index + 1,))
        assert crossing.tensor.differentiable
        shapes.add(crossing.tensor.shape)
    assert shapes == {(("batch", 1), ("sequence", 32), ("hidden", 24))}


def test_data_carries_no_gradient(graph):
    made = {tensor.name for operator in graph.operators for tensor in operator.outputs}
    for operator in graph.operators:
        for tensor in operator.inputs:
            assert tensor.differentiable == (tensor.name in made)


def test_axes_are_documented_and_unique(graph):
    for operator in graph.operators:
        shapes = [operator.space, *(t.shape for t in (*operator.inputs, *operator.outputs))]
        for shape in (*shapes, *(parameter.shape for parameter in operator.parameters)):
            names = [name for name, _ in shape]
            assert set(names) <= DOCUMENTED, operator.name
            assert len(names) == len(set(names)), operator.name


def test_contracted_axes_are_summed_away(graph):
    for operator in graph.operators:
        space = {name for name, _ in operator.space}
        assert set(operator.contracted) <= space
        for tensor in operator.outputs:
            assert not {name for name, _ in tensor.shape} & set(operator.contracted), operator.name


def test_batch_and_sequence_belong_to_activations_only(graph):
    for operator in graph.operators:
        for tensor in (*operator.inputs, *operator.outputs):
            assert axis_size(tensor.shape, "batch") == 1
            assert axis_size(tensor.shape, "sequence") == 32
        for parameter in operator.parameters:
            assert not {"batch", "sequence"} & {name for name, _ in parameter.shape}


def test_sums_over_vocabulary_and_visited_experts_are_marked(deepseek, load):
    contracted = {o.name: o.contracted for o in load(deepseek).operators}
    assert contracted["embedding/words"] == contracted["head/loss"] == ("vocab",)
    assert contracted["layers.2/combine"] == ("top_k",)
    assert contracted["layers.0/attention_output"] == ("heads", "value")
    assert contracted["layers.0/mlp_down"] == ("ffn",)
    assert contracted["layers.2/expert_down"] == ("expert_ffn",)


def test_attention_is_one_kernel_or_three_operators_of_one_kind(llama, load):
    """Selective recomputation drops operators by kind: all of attention, or none."""
    for attention, names in {
        "flash": ["attention"],
        "unfused": ["attention_scores", "attention_softmax", "attention_context"],
    }.items():
        block = load(llama, attention=attention).by_layer[1]
        core = [o for o in block if o.kind == "attention"]
        assert [o.name.partition("/")[2] for o in core] == names
        assert {name for tensor in core[-1].inputs for name in (tensor.name,)} <= set(core[-1].saves)


def test_every_family_has_a_reader_and_every_reader_is_listed():
    families = [each for each in nest_model_importers() if isinstance(each, Family)]
    read = {name for each in families for name in import_module(f"nest.models.{each.module}").FAMILIES}
    assert {each.name for each in families} == read
    assert len(families) > 20
