"""The operators that the plans of a problem would run, as experiments."""

from collections.abc import Iterator
from math import prod
from pathlib import Path

from nest.graph import Operator, axis_size, elements
from nest.spec.measurements import DIRECTIONS
from nest_torch.experiments import ONE_WAY, Experiment

MEASURED = ("norm", "elementwise", "activation", "softmax", "embedding")
"""Kinds that are bound by memory and measured by rows and width."""


def problem_experiments(path: Path) -> tuple[Experiment, ...]:
    """Every distinct operator of every block that the strategies make of the problem's model, in their order.

    Raises:
        InputError: the problem cannot be used, or has a profile in place of a model.
    """
    from nest.public.planning import blocks

    found: dict[str, Experiment] = {}
    for block in blocks(path):
        for operator in block.graph.operators:
            for experiment in _experiments(operator):
                found.setdefault(str(experiment), experiment)
    return tuple(found.values())


def _experiments(operator: Operator) -> Iterator[Experiment]:
    if operator.kind == "matmul":
        yield from _product(operator)
    elif operator.kind == "attention":
        yield from _attention(operator)
    elif operator.kind in MEASURED and operator.outputs and operator.outputs[0].shape:
        shape = operator.outputs[0].shape
        sizes: dict[str, int | bool] = {"rows": elements(shape[:-1]), "width": shape[-1][1]}
        if operator.kind == "activation" and operator.bytes_read > operator.bytes_written:
            sizes["branches"] = 2
        for direction in ("forward",) if operator.kind in ONE_WAY else DIRECTIONS:
            yield Experiment(operator.kind, sizes, direction)
    elif operator.kind == "loss":
        logits = operator.inputs[0].shape
        for direction in DIRECTIONS:
            yield Experiment("softmax", {"rows": elements(logits[:-1]), "width": logits[-1][1]}, direction)
    for parameter in operator.parameters:
        if parameter.shape:  # Sums of gradients.
            yield Experiment("elementwise", {"rows": elements(parameter.shape[:-1]), "width": parameter.shape[-1][1]})


def _product(operator: Operator) -> Iterator[Experiment]:
    """The product of a layer with weights; of experts one for each, with the rows shared out evenly."""
    if not operator.parameters:
        return
    weight = operator.parameters[0].shape
    contracted = prod(size for axis, size in operator.space if axis in operator.contracted)
    columns = prod(size for axis, size in weight if axis not in (*operator.contracted, "experts"))
    rows, groups = elements(operator.space) // (contracted * columns), axis_size(weight, "experts")
    if rows * columns * contracted == elements(operator.space):
        each = max(1, rows // groups)
        yield Experiment("matmul", {"batch": groups, "rows": each, "columns": columns, "contracted": contracted})


def _attention(operator: Operator) -> Iterator[Experiment]:
    """A fused kernel, which writes no scores; causal where it executes fewer FLOP than the model asks for."""
    space = operator.space
    if len(operator.inputs) < 3 or any(axis == "keys" for tensor in operator.outputs for axis, _ in tensor.shape):
        return
    heads, value = axis_size(space, "heads"), operator.outputs[0].shape[-1][1]
    sequence, keys, head = (axis_size(space, name) for name in ("sequence", "keys", "head"))
    kv_heads = prod(size for axis, size in operator.inputs[1].shape if axis in ("heads", "kv_heads"))
    shape: dict[str, int | bool] = {"batch": axis_size(space, "batch"), "heads": heads}
    shape |= {"kv_heads": kv_heads if heads % kv_heads == 0 else heads, "head": head, "sequence": sequence}
    shape |= {"keys": keys} if keys != sequence else {}
    shape |= {"value": value} if value != head else {}
    shape["causal"] = operator.flops < operator.model_flops
    yield Experiment("attention", shape, "forward")
    yield Experiment("attention", shape, "backward")
