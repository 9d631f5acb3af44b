"""Operator graphs written to a file come back as they were, and broken ones are told so."""

import copy

import pytest

from nest.errors import InputError
from nest.io import unstructure


@pytest.fixture
def written(llama, load):
    return unstructure(load(llama))


def test_a_written_graph_comes_back(small, load):
    graph = load(small.config)
    assert load(unstructure(graph)) == graph


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("operators", 3, "space", 0, 1), 0, "shorter than 1"),
        (("operators", 3, "space", 0, 1), 2, "batch"),
        (("operators", 3, "inputs", 0, "itemsize"), -2.0, "itemsize"),
        (("operators", 3, "flops_per_point"), -1.0, "negative"),
        (("operators", 3, "flops_per_point"), float("nan"), "finite"),
        (("operators", 3, "saves"), ["nothing"], "nothing"),
        (("operators", 3, "contracted"), ["depth"], "depth"),
        (("operators", 3, "layer"), "layers.9", "layers.9"),
        (("operators", 3, "collective"), {"forward": [], "backward": []}, "single device"),
        (("operators", 3, "kin"), "matmul", "kin"),
        (("operators", 3, "kind"), "matmull", "did you mean matmul"),
        (("operators", 3, "name"), "embedding/words", "two operators are named 'embedding/words'"),
        (("operators", 3, "inputs", 0, "name"), "layers.0/attention_nrm", "did you mean 'layers.0/attention_norm'"),
        (("operators", 3, "outputs"), [], "before it is written|layers.0"),
        (("blocks",), ["layers.9"], "layers.9"),
        (("layers",), ["embedding", "layers.0", "layers.1", "layers.2", "head", "tail"], "tail"),
        (("layers",), ["embedding", "layers.1", "layers.0", "layers.2", "head"], "comes later"),
    ],
)
def test_broken_graphs_are_told_so(written, load, path, value, named):
    broken = copy.deepcopy(written)
    place = broken
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    if path[-1] == "outputs":
        broken["operators"] = list(reversed(broken["operators"]))
    with pytest.raises(InputError, match=named):
        load(broken)


@pytest.mark.parametrize("sequence_length", [None, 64])
def test_the_training_must_have_the_graphs_sequence(written, load, sequence_length):
    with pytest.raises(InputError, match="sequence"):
        load(written, sequence_length)
