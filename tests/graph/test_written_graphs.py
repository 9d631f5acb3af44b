"""Operator graphs written to JSON and read back are equal, and pass the schema."""

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.graph import KINDS, Operator, OperatorGraph, Parameter, Shape, Tensor
from nest.io import structure, unstructure
from nest.models import operator_graph as importer
from nest.spec import Training

SCHEMA = Path(__file__).resolve().parents[2] / "schemas" / "graph.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
AXES = ("hidden", "heads", "ffn", "any axis", "été")
SEQUENCE = 8


def shapes(*leading: tuple[str, int]) -> st.SearchStrategy[Shape]:
    """Shapes that begin with `leading`; no axis occurs twice."""
    axes = st.lists(st.tuples(st.sampled_from(AXES), st.integers(1, 9)), max_size=3, unique_by=lambda axis: axis[0])
    return axes.map(lambda found: (*leading, *found))


ACTIVATIONS = shapes(("batch", 1), ("sequence", SEQUENCE))
ITEMSIZES = st.sampled_from((0.5, 1.0, 2.0, 4.0))
NAMES = st.text(min_size=1, max_size=8)


@st.composite
def operator_graphs(draw: st.DrawFn) -> OperatorGraph:
    """A graph of layers in a row, whose operators read whatever was written before."""
    layers = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    written = [Tensor("tokens", (("batch", 1), ("sequence", SEQUENCE)), 8.0, differentiable=False)]
    operators = []
    for layer in layers:
        for _ in range(draw(st.integers(1, 3))):
            index = len(operators)
            output = Tensor(f"t{index}", draw(ACTIVATIONS), draw(ITEMSIZES), draw(st.booleans()))
            inputs = tuple(draw(st.lists(st.sampled_from(written), max_size=3, unique=True)))
            space = draw(ACTIVATIONS)
            operators.append(
                Operator(
                    name=f"{layer}/{index}",
                    layer=layer,
                    kind=draw(st.sampled_from([*KINDS[:-1], "of its own"])),
                    space=space,
                    flops_per_point=draw(st.floats(0, 1e6)),
                    backward_flops_ratio=draw(st.floats(0, 4)),
                    inputs=inputs,
                    outputs=(output,),
                    parameters=draw(parameters()),
                    saves=tuple(t.name for t in inputs if draw(st.booleans())),
                    contracted=tuple(axis for axis, _ in space[2:] if draw(st.booleans())),
                    model_flops_per_point=draw(st.none() | st.floats(0, 1e6)),
                    split=(),
                )
            )
            written.append(output)
    blocks = tuple(layer for layer in layers if draw(st.booleans()))
    return OperatorGraph(tuple(operators), tuple(layers), blocks, draw(NAMES), tuple(draw(st.lists(NAMES, max_size=2))))


@st.composite
def parameters(draw: st.DrawFn) -> tuple[Parameter, ...]:
    found = draw(st.lists(NAMES, max_size=2, unique=True))
    groups = st.sampled_from(("dense", "expert"))
    return tuple(Parameter(name, draw(shapes()), draw(groups), draw(st.booleans())) for name in found)


@pytest.mark.longer
@settings(max_examples=20, deadline=None)
@given(operator_graphs())
def test_graphs_are_read_back_as_they_are(graph: OperatorGraph) -> None:
    written = unstructure(graph)
    VALIDATOR.validate(written)
    read = json.loads(json.dumps(written))
    assert structure(read, OperatorGraph) == graph
    assert importer.load(read, Training(1, SEQUENCE)) == graph
    assert importer.sequence_length(read) == SEQUENCE
    assert OperatorGraph.from_networkx(graph.to_networkx()) == graph
