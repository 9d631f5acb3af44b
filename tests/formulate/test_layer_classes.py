"""Pricing one layer of each kind gives the same candidates as pricing every layer."""

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from attrs import evolve

from nest.catalogue import device, optimizer, precision
from nest.formulate.candidate_costs import candidate
from nest.formulate.layer_classes import LayerClasses, layer_classes
from nest.formulate.pricing import Pricing
from nest.formulate.shard import ShardedGraphs
from nest.graph import Operator, OperatorGraph, Parameter, Tensor
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.spec import Problem, TransformerSpec

Build = Callable[..., Problem]

MODELS = {
    "dense": TransformerSpec(layers=5, hidden=64, ffn=128, heads=8, kv_heads=4, vocab=500),
    "experts": TransformerSpec(
        layers=6, hidden=64, ffn=128, heads=8, vocab=500, experts=4, top_k=2, moe_ffn=32, dense_layers=2
    ),
}


def graph_of(problem: Problem) -> OperatorGraph:
    return registry().model_importers()["transformer"].load(problem.model, problem.training)


def one_by_one(graph: OperatorGraph) -> LayerClasses:
    """Every layer a kind of its own."""
    crossing = layer_classes(graph).crossing
    names = {(t.producer, t.consumers): t.tensor.name for t in graph.layer_tensors}
    renamed = tuple(type(c)(c.producer, c.consumers, (names[c.producer, c.consumers],)) for c in crossing)
    return LayerClasses(graph, tuple(range(len(graph.layers))), graph.layers, renamed)


@pytest.mark.longer
@pytest.mark.parametrize("model", MODELS)
def test_candidates_are_the_same_either_way(model: str, problem: Build) -> None:
    asked = problem(MODELS[model])
    graph = graph_of(asked)
    cluster = Cluster((Level("node", 8, 3e11, 1e-6),), memory=80e9)
    known = registry()
    pricing = Pricing(
        cluster,
        device("a100-sxm-80g"),
        asked.training,
        precision("bf16"),
        optimizer("adam"),
        known.cost_models()["roofline"],
        known.collective_models()["alpha-beta"],
        known.layer_times()["sequential"],
    )
    found: list[list[Any]] = []
    for layers in (layer_classes(graph), one_by_one(graph)):
        context = StrategyContext(cluster, asked.training)
        blocks = ShardedGraphs(layers.graph, known.strategies(), {}, (1, 2), context).every()
        found.append([candidate(f"{block.degrees}", block, layers, pricing) for block in blocks])
    assert len(found[0]) == len(found[1]) > 4
    for few, all_layers in zip(*found, strict=True):
        assert few.degrees == all_layers.degrees
        for (place, a), (_, b) in zip(few.arrays(), all_layers.arrays(), strict=True):
            assert numpy.array_equal(a, b), place


def test_blocks_become_one(problem: Build) -> None:
    dense, experts = (layer_classes(graph_of(problem(MODELS[name]))) for name in ("dense", "experts"))
    assert dense.class_of == (0, 1, 1, 1, 1, 1, 2)
    assert dense.graph.layers == ("embedding", "layers.0", "head")
    assert experts.class_of == (0, 1, 1, 2, 2, 2, 2, 3)
    assert experts.graph.blocks == ("layers.0", "layers.2")


def chain(*reads: tuple[str, ...]) -> OperatorGraph:
    """Layers `l0`, `l1`, ... of one operator each, reading the outputs of others."""

    def tensor(name: str) -> Tensor:
        return Tensor(name, (("sequence", 4), ("hidden", 8)))

    operators = tuple(
        Operator(f"l{i}/op", f"l{i}", "norm", inputs=tuple(map(tensor, names)), outputs=(tensor(f"y{i}"),))
        for i, names in enumerate(reads)
    )
    return OperatorGraph(operators, tuple(f"l{i}" for i in range(len(reads))))


def test_a_layer_that_reads_two_of_a_kind_keeps_them_apart() -> None:
    assert layer_classes(chain(("x",), ("y0",), ("y1",))).class_of == (0, 1, 1)
    # l3 reads l1 and l2; both would be l1.
    assert layer_classes(chain(("x",), ("y0",), ("y1",), ("y1", "y2"))).class_of == (0, 1, 2, 3)


def test_what_crosses_is_that_of_the_whole_graph() -> None:
    layers = layer_classes(chain(("x",), ("y0",), ("y1",), ("y2", "y0")))
    assert [(c.producer, c.consumers, c.names) for c in layers.crossing] == [
        (0, (1, 3), ("y0",)),
        (1, (2,), ("y1",)),
        (2, (3,), ("y1",)),
    ]


def test_a_block_differs_from_an_equal_layer_that_is_none(problem: Build) -> None:
    plain = chain(("x",), ("y0",), ("y1",), ("y2",))
    named = OperatorGraph(plain.operators, plain.layers, blocks=("l1", "l2"))
    assert layer_classes(plain).class_of == (0, 1, 1, 1)
    assert layer_classes(named).class_of == (0, 1, 1, 2)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "matmul"},
        {"parameters": (Parameter("w", (("hidden", 8),)),)},
        {"saves": ("y0",)},
        {"space": (("sequence", 4),)},
        {"outputs": (Tensor("y1", (("sequence", 4), ("hidden", 8)), itemsize=4.0),)},
        {"outputs": (Tensor("y1", (("sequence", 8), ("hidden", 8))),)},
    ],
)
def test_layers_of_which_anything_but_names_differs_are_of_two_kinds(change: dict[str, Any]) -> None:
    plain = chain(("x",), ("y0",), ("x",))
    assert layer_classes(plain).class_of == (0, 1, 0)
    first, middle, last = plain.operators
    again = evolve(last, layer="l2", name="l2/op", inputs=middle.inputs, outputs=(evolve(last.outputs[0], name="y2"),))
    graph = OperatorGraph((first, middle, again), plain.layers)
    assert layer_classes(graph).class_of == (0, 1, 1)
    assert layer_classes(OperatorGraph((first, evolve(middle, **change), again), plain.layers)).class_of == (0, 1, 2)
