"""Blocks repeated: what cannot be repeated is told, what can is one chain."""

import pytest
from attrs import evolve

from nest.errors import InputError
from nest.graph import OperatorGraph
from nest.graph.repeat import repeated
from nest.models import transformer as importer
from nest.spec import Training, TransformerSpec

WIDTHS = {"hidden": 16, "heads": 4, "ffn": 24, "vocab": 40}


def graph(layers: int, **widths: int) -> OperatorGraph:
    return importer.load(TransformerSpec(layers=layers, **{**WIDTHS, **widths}), Training(1, 8))


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("count", [3, 4, 9])
def test_repeated_graphs_are_those_of_more_layers(layers: int, count: int) -> None:
    assert repeated(graph(layers), count) == graph(count)


def test_blocks_that_differ_are_not_repeated() -> None:
    mixed = graph(2, experts=4, top_k=2, dense_layers=1)
    with pytest.raises(InputError, match=r"layers\.0 and layers\.1 differ"):
        repeated(mixed, 5)
    assert len(repeated(graph(3, experts=4, top_k=2, dense_layers=1), 5).blocks) == 5


def test_what_cannot_be_repeated_is_told() -> None:
    with pytest.raises(InputError, match="it has 3 blocks"):
        repeated(graph(3), 2)
    with pytest.raises(InputError, match="no blocks"):
        repeated(evolve(graph(3), blocks=()), 5)
    with pytest.raises(InputError, match=r"'head'.*number at its end"):
        repeated(evolve(graph(3), blocks=("layers.2", "head")), 5)
    with pytest.raises(InputError, match="as another layer"):
        repeated(evolve(graph(3), blocks=("layers.0", "layers.1")), 4)
