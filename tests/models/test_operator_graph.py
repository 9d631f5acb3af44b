"""Operator graphs written to a file come back as they were, and broken ones are told so."""

import copy

import pytest

from nest.errors import InputError
from nest.formulate.model import load_model
from nest.hooks.registry import Registry
from nest.io import unstructure
from nest.spec import Training


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


@pytest.mark.parametrize("held", [lambda graph: {"graph": graph}, lambda graph: {"graph": {"graph": graph}}])
def test_a_graph_with_fewer_blocks_is_repeated(llama, load, written, held):
    deep = load({**llama, "num_hidden_layers": 7})
    repeated = load({**held(written), "repeat": 7})
    assert repeated.layers == deep.layers
    assert repeated.flops == deep.flops
    assert repeated.parameter_count == deep.parameter_count
    assert load(held(written)) == load(written)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"repeat": 1}, "it has 3 blocks"),
        ({"repeat": 0}, "repeat must be"),
        ({"repeat": True}, "repeat must be"),
        ({"repaet": 4}, "did you mean `repeat`"),
        ({"causal": True}, "exported programs"),
    ],
)
def test_options_that_cannot_be_are_told(written, load, options, named):
    with pytest.raises(InputError, match=named):
        load({"graph": written, **options})


@pytest.mark.parametrize("held", [lambda rows: {"graph": rows}, lambda rows: {"graph": {"nodes": rows}}])
def test_exported_programs_name_the_plug_in_that_reads_them(monkeypatch, held):
    monkeypatch.setenv("NEST_DISABLED_PLUGINS", "nest-torch")
    node = {"name": "mm", "op": "aten.mm.default", "inputs": ["x", "p_w"], "shape": [[1, 8]]}
    with pytest.raises(InputError, match=r"torch.export program; install nest-torch"):
        load_model(held([node]), Training(1, 8), Registry())
