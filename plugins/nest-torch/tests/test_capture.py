"""Captured graphs: PyTorch's own counts of parameters and FLOP, nest's own graphs of the same models, plans."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.errors import InputError
from nest.graph import OperatorGraph, axis_size
from nest.io import structure, unstructure
from nest.models import operator_graph as importer
from nest.models import transformer
from nest.spec import Training, TransformerSpec

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")
flop_counter = pytest.importorskip("torch.utils.flop_counter")

from nest_torch import capture  # noqa: E402

_spec = importlib.util.spec_from_file_location("modules", Path(__file__).with_name("modules.py"))
assert _spec is not None
assert _spec.loader is not None
modules = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(modules)

SEQUENCE = 16


def tokens(samples: int = 1) -> Any:
    return torch.zeros(samples, SEQUENCE, dtype=torch.long, device="meta")


def numbers(*sizes: int) -> Any:
    return torch.zeros(*sizes, device="meta")


def on_meta(make: Any, **options: Any) -> Any:
    with torch.device("meta"):
        return make(**options)


MODULES: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
    ("Gpt", {}, (tokens(),)),
    ("Llama", {}, (tokens(),)),
    ("Llama", {}, (tokens(), tokens())),
    ("Llama", {"repeat": True}, (tokens(),)),
    ("Unfused", {}, (tokens(),)),
    ("Convolutional", {}, (numbers(1, 3, 32, 32),)),
    ("Encoder", {}, (numbers(1, SEQUENCE, 64),)),
]
NAMES = ["gpt", "llama", "llama-with-loss", "llama-repeating-keys", "unfused", "convolutional", "encoder"]


@pytest.fixture(params=MODULES, ids=NAMES)
def case(request: pytest.FixtureRequest) -> tuple[Any, tuple[Any, ...], OperatorGraph]:
    name, options, inputs = request.param
    module = on_meta(getattr(modules, name), **options)
    return module, inputs, capture(module, inputs)


def test_parameters_and_flops_are_those_pytorch_counts(case: Any) -> None:
    module, inputs, graph = case
    assert graph.parameter_count == sum(each.numel() for each in module.parameters())
    with flop_counter.FlopCounterMode(display=False) as counter:
        module(*inputs)
    assert graph.model_flops == counter.get_total_flops()


@pytest.mark.parametrize(
    ("name", "options", "inputs"), [("Unfused", {}, tokens()), ("Convolutional", {"groups": 1}, numbers(1, 3, 32, 32))]
)
def test_backward_flops_are_those_pytorch_counts(name: str, options: dict[str, Any], inputs: Any) -> None:
    """Twice the forward FLOP where both operands have a gradient, as much where one is what came with the data.

    PyTorch's counter takes the weight gradient of a grouped convolution for that of a whole one.
    """
    module = on_meta(getattr(modules, name), **options)
    graph = capture(module, (inputs,), fused=False)
    with flop_counter.FlopCounterMode(display=False) as counter:
        module(inputs).sum().backward()
    assert sum(each.flops + each.backward_flops for each in graph.operators) == counter.get_total_flops()


def test_graphs_are_read_back_as_they_are(case: Any) -> None:
    _, _, graph = case
    written = unstructure(graph)
    assert structure(written, OperatorGraph) == graph
    assert importer.load(written, Training(1, SEQUENCE)) == graph


def test_samples_scale_everything_but_parameters(case: Any) -> None:
    _, _, graph = case
    more = graph.with_samples(5)
    assert more.flops == 5 * graph.flops
    assert more.parameter_count == graph.parameter_count
    for one, five in zip(graph.operators, more.operators, strict=True):
        if one.flops:
            assert five.bytes_written == 5 * one.bytes_written, one.name


def test_repeated_blocks_are_layers_and_equal() -> None:
    graph = capture(on_meta(modules.Llama), (tokens(),))
    assert graph.layers == ("embedding", "layers.0", "layers.1", "layers.2", "layers.3", "head")
    assert graph.blocks == graph.layers[1:-1]
    shapes = [[(o.kind, o.space, [t.shape for t in o.inputs], o.parameters) for o in row] for row in graph.by_layer]
    assert shapes[1] == shapes[2] == shapes[3] == shapes[4]
    convolutional = capture(on_meta(modules.Convolutional), (numbers(1, 3, 32, 32),))
    assert convolutional.layers == ("embedding", "blocks.0", "blocks.1", "blocks.2", "head")


def test_axes_are_those_strategies_split() -> None:
    graph = capture(on_meta(modules.Llama), (tokens(),))
    spaces = {operator.name: dict(operator.space) for operator in graph.operators}
    assert spaces["layers.1/up"] == {"batch": 1, "sequence": SEQUENCE, "ffn": 176, "hidden": 64}
    assert axis_size(graph.operators[0].space, "vocab") == 100
    attention = next(each for each in graph.operators if each.kind == "attention")
    assert dict(attention.space) == {"batch": 1, "heads": 8, "sequence": SEQUENCE, "keys": SEQUENCE, "head": 8}
    assert axis_size(attention.inputs[1].shape, "kv_heads") == 2
    assert spaces["head/lm_head"] == {"batch": 1, "sequence": SEQUENCE, "vocab": 100, "hidden": 64}
    for name in ("layers.0/query", "layers.0/out"):
        assert spaces[name]["heads"] == 8


def test_repeated_keys_are_read_once() -> None:
    """Keys that are repeated for the queries are a view: the kernel reads as many bytes as without."""

    def keys(repeat: bool) -> float:
        graph = capture(on_meta(modules.Llama, repeat=repeat), (tokens(),))
        return next(each for each in graph.operators if each.kind == "attention").bytes_read

    assert keys(True) == keys(False)


def test_scores_that_are_stored_are_attention() -> None:
    graph = capture(on_meta(modules.Unfused), (tokens(),), fused=False)
    stored = [each for each in graph.operators if each.kind == "attention"]
    assert len(stored) == 5
    assert dict(stored[0].space)["keys"] == SEQUENCE
    assert all(axis_size(each.space, "heads") == 4 for each in stored)


@pytest.mark.parametrize("kept", [False, True])
def test_attention_written_out_is_one_kernel(kept: bool) -> None:
    """Causal where the mask is made of a comparison of places; of a mask that is kept nobody knows what it hides."""
    graph = capture(on_meta(modules.Unfused, kept=kept), (tokens(),))
    (found,) = (each for each in graph.operators if each.kind == "attention")
    assert dict(found.space) == {"batch": 1, "heads": 4, "sequence": SEQUENCE, "keys": SEQUENCE, "head": 16}
    assert found.flops == found.model_flops * (1.0 if kept else (SEQUENCE + 1) / 2 / SEQUENCE)
    assert {tensor.name for tensor in found.inputs} == {f"qkv/linear.{index}" for index in range(3)}


def test_small_operators_of_one_module_run_together() -> None:
    """A norm in six calls, a rotation of queries and keys in ten, a gated activation in two: three operators."""
    graph = capture(on_meta(modules.Llama), (tokens(),))
    kinds = [each.kind for each in graph.operators if each.layer == "layers.1"]
    products, small = ["matmul"], ["elementwise"]
    attention = ["norm", *products * 3, *small, "attention", *products, *small]
    assert kinds == [*attention, "norm", *products * 2, "activation", *products, *small]
    traced = capture(on_meta(modules.Llama), (tokens(),), fused=False)
    assert len(traced.operators) > 2 * len(graph.operators)
    assert traced.model_flops == graph.model_flops
    assert traced.parameter_count == graph.parameter_count


@pytest.mark.parametrize(("loss", "itemsizes"), [("unfused", [4.0]), ("fused", [4.0]), ("none", [])])
def test_logits_get_the_loss_they_are_made_for(loss: str, itemsizes: list[float]) -> None:
    graph = capture(on_meta(modules.Llama).bfloat16(), (tokens(),), loss=loss)
    found = [each for each in graph.operators if each.kind == "loss"]
    assert [tensor.itemsize for each in found for tensor in each.inputs if tensor.differentiable] == (
        [2.0] if loss == "fused" else itemsizes
    )
    assert graph.operators[-1].name == ("head/lm_head" if loss == "none" else "head/loss")


def test_tied_parameters_count_once() -> None:
    graph = capture(on_meta(modules.Gpt), (tokens(),))
    tied = [(o.layer, p.name) for o in graph.operators for p in o.parameters if p.tied]
    assert tied == [("head", "weight")]


def test_a_captured_llama_is_the_one_nest_builds() -> None:
    """Two ways to the same model: parameters, model FLOP and executed FLOP of every layer agree."""
    captured = capture(on_meta(modules.Llama), (tokens(),))
    spec = TransformerSpec(
        layers=4, hidden=64, ffn=176, heads=8, kv_heads=2, vocab=100, gated_mlp=True, tied_embeddings=False
    )
    built = transformer.load(spec, Training(1, SEQUENCE))
    assert captured.layers == built.layers
    for one, other in zip(captured.by_layer, built.by_layer, strict=True):
        assert sum(each.parameter_count for each in one) == sum(each.parameter_count for each in other)
        assert sum(each.flops for each in one) == sum(each.flops for each in other)
        assert sum(each.model_flops for each in one) == sum(each.model_flops for each in other)


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this PyTorch has no grouped products")
def test_experts_are_told_from_grouped_products() -> None:
    """Every token goes two ways through experts, whose weights expert parallelism splits."""
    module = on_meta(modules.Experts).bfloat16()
    graph = capture(module, (torch.zeros(1, SEQUENCE, 64, device="meta", dtype=torch.bfloat16),))
    up, down = (each for each in graph.operators if each.parameters and each.parameters[0].group == "expert")
    ways = {"batch": 1, "sequence": SEQUENCE, "top_k": 2}
    assert {name: size for name, size in up.space if name in ways} == ways
    assert up.flops == 2 * SEQUENCE * 2 * 64 * 128
    assert axis_size(up.parameters[0].shape, "experts") == 4
    assert "expert_ffn" in down.contracted
    assert axis_size(down.parameters[0].shape, "expert_ffn") == 128


@pytest.mark.parametrize("fixed", [{}, {"tp": 2, "sp": True}, {"cp": 2}, {"pp": 2}])
def test_captured_graphs_are_planned(fixed: dict[str, Any]) -> None:
    module = on_meta(modules.Llama)
    problem = {
        "nest": 1,
        "model": unstructure(capture(module.bfloat16(), (tokens(),))),
        "training": {"global_batch": 8, "sequence_length": SEQUENCE, "micro_batch": [1, 2]},
        "cluster": {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 4, "link": "nvlink4"}]},
        "fixed": fixed,
    }
    plan = nest.solve(problem)
    assert plan.status == "optimal"
    assert all(plan.candidate.degrees[name] == degree for name, degree in fixed.items() if name in ("tp", "cp"))
    assert nest.check(plan).ok


def test_a_captured_graph_says_how_long_its_samples_are() -> None:
    problem = {
        "nest": 1,
        "model": capture(on_meta(modules.Gpt), (tokens(),)),
        "training": {"global_batch": 8},
        "cluster": {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 2, "link": "nvlink4"}]},
    }
    assert nest.solve(problem).problem["training"]["sequence_length"] == SEQUENCE


def test_weights_on_a_device_are_left_alone() -> None:
    module = modules.Gpt()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    graph = capture(module, (torch.zeros(1, SEQUENCE, dtype=torch.long),))
    assert graph == capture(on_meta(modules.Gpt), (tokens(),))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize(
    ("name", "inputs", "options", "told"),
    [
        ("Branching", (numbers(2, 4),), {}, "Branching cannot be traced"),
        ("Recurrent", (numbers(2, 5, 8),), {}, "whose inside nest does not see"),
        ("Gpt", (tokens(),), {"axes": [("", "sequence")]}, "called batch"),
        ("Gpt", (tokens(),), {"axes": [("batch",)]}, "must name the 2 dimensions"),
        ("Llama", (tokens(), tokens()[:, :3]), {}, "axis sequence of the inputs is 16 long in one place and 3"),
        ("Gpt", (tokens(), 3), {}, "Gpt cannot be traced"),
    ],
)
def test_what_cannot_be_captured_is_refused_in_plain_words(
    name: str, inputs: Any, options: dict[str, Any], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    module = on_meta(getattr(modules, name))
    with pytest.raises(InputError, match=told) as raised:
        capture(module, inputs, **options)
    assert "\n" not in str(raised.value)
    assert "Traceback" not in "".join(capfd.readouterr())
