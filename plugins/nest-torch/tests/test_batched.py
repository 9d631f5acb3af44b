"""Products with dimensions side by side: their FLOP are PyTorch's own, and heads among them are split."""

from typing import Any

import pytest

import nest
from nest.errors import InputError
from nest.graph import OTHER_SAMPLES, OperatorGraph, axis_size
from nest.io import unstructure

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")
flop_counter = pytest.importorskip("torch.utils.flop_counter")

import batched  # noqa: E402
from nest_torch import capture  # noqa: E402

TOKENS = 24


def on_meta(make: Any, *options: Any) -> Any:
    with torch.device("meta"):
        return make(*options)


def numbers(*sizes: int) -> Any:
    return torch.zeros(*sizes, device="meta")


def counted(module: Any, *inputs: Any) -> int:
    """FLOP of a forward pass, as PyTorch counts them."""
    with flop_counter.FlopCounterMode(display=False) as counter:
        module(*inputs)
    return int(counter.get_total_flops())


def products(graph: OperatorGraph) -> list[Any]:
    """The products of two tensors of which neither is learned."""
    return [each for each in graph.operators if each.kind == "matmul" and not each.parameters]


@pytest.mark.parametrize("form", batched.FORMS)
def test_every_form_costs_what_pytorch_counts_and_has_its_heads(form: str) -> None:
    module = on_meta(batched.Headed, form)
    graph = capture(module, (numbers(1, TOKENS, batched.WIDTH),), loss="none")
    assert graph.model_flops == counted(module, numbers(1, TOKENS, batched.WIDTH))
    assert graph.with_samples(3).model_flops == counted(module, numbers(3, TOKENS, batched.WIDTH))
    assert len(products(graph)) == 2
    for operator in products(graph):
        assert axis_size(operator.space, "heads") == batched.HEADS
        assert operator.backward_flops_ratio == 2.0
        width = batched.WIDTH // batched.HEADS
        sizes = {tensor.bytes / tensor.itemsize / batched.HEADS for tensor in (*operator.inputs, *operator.outputs)}
        assert len(operator.inputs) == (3 if operator.name.endswith("baddbmm") else 2)
        # Operands and results of a head; the last are baddbmm's sums.
        assert sizes <= {TOKENS * width, TOKENS * TOKENS, width * width, TOKENS}


@pytest.mark.parametrize("form", batched.FORMS)
def test_heads_are_split_by_tensor_parallelism(form: str) -> None:
    graph = capture(on_meta(batched.Headed, form), (numbers(1, TOKENS, batched.WIDTH),))
    problem = {
        "nest": 1,
        "model": unstructure(graph),
        "training": {"global_batch": 8},
        "cluster": {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 4, "link": "nvlink4"}]},
        "search": {"target": "none"},
    }
    plan = nest.evaluate({**problem, "fixed": {"tp": 4}})
    assert plan.candidate is not None
    assert plan.candidate.degrees["tp"] == 4
    assert nest.check(plan).ok


def test_weights_by_head_are_split_with_them() -> None:
    module = on_meta(batched.WeightsByHead)
    graph = capture(module, (numbers(1, TOKENS, batched.WIDTH),))
    assert graph.model_flops == counted(module, numbers(1, TOKENS, batched.WIDTH))
    (weights,) = [each.parameters[0] for each in graph.operators if each.name.endswith("einsum")]
    assert weights.shape[0] == ("heads", batched.HEADS)


def test_a_sum_by_letters_is_no_product() -> None:
    module = on_meta(batched.Summed)
    graph = capture(module, (numbers(1, TOKENS, batched.WIDTH),))
    assert graph.model_flops == counted(module, numbers(1, TOKENS, batched.WIDTH))
    assert [each.kind for each in graph.operators if each.name.endswith("einsum")] == ["elementwise"]


def test_a_diagonal_is_refused() -> None:
    with pytest.raises(InputError, match="calls einsum with 'bii->bi', which takes a diagonal; nest reads none"):
        capture(on_meta(batched.Diagonal), (numbers(1, 8, 8),))


@pytest.mark.parametrize("samples", [1, 4, 16])
def test_samples_that_are_compared_cost_their_square(samples: int) -> None:
    module = on_meta(batched.Contrastive)
    graph = capture(module, (numbers(1, batched.WIDTH), numbers(1, batched.WIDTH)))
    inputs = numbers(samples, batched.WIDTH), numbers(samples, batched.WIDTH)
    assert graph.with_samples(samples).model_flops == counted(module, *inputs)
    (logits,) = [each.outputs[0] for each in graph.with_samples(samples).operators if each.name.endswith("matmul")]
    assert logits.shape == (("batch", samples), (OTHER_SAMPLES, samples))


def test_what_is_compared_is_said_and_planned() -> None:
    graph = capture(on_meta(batched.Contrastive), (numbers(1, batched.WIDTH), numbers(1, batched.WIDTH)))
    assert graph.assumptions == (
        "samples are compared with those of their micro-batch on their device (right/matmul).",
    )
    problem = {
        "nest": 1,
        "model": unstructure(graph),
        "training": {"global_batch": 64, "micro_batch": [16]},
        "cluster": {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 2, "link": "nvlink4"}]},
        "strategies": {"batch": [2]},
    }
    plan = nest.solve(problem)
    assert plan.status == "optimal"
    assert nest.check(plan).ok
