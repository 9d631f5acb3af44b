"""Importer of operator graphs written out in a file (FORMATS.md, `model`), perhaps with fewer blocks than the model."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from nest.errors import InputErrors
from nest.graph import KINDS, OTHER_SAMPLES, Operator, OperatorGraph
from nest.io import structure
from nest.models import held_graph
from nest.spec import Training

OPTIONS = ("repeat", "causal", "parameters")  # Keys beside a graph; all but the first are for exported programs.
MOST_REPORTED = 20  # Most problems reported at once.


def load(source: Any, training: Training) -> OperatorGraph:
    """Read the graph as written, with its own precision and attention kernel whatever the training says.

    Raises:
        InputErrors: the mapping is no operator graph, an option beside it is impossible, or the graph is not of one
            sample of the training's sequence length.
    """
    held = held_graph(source)
    repeat = None if held is source else _repeat(source)
    graph = structure(held, OperatorGraph)
    problems = [*_graph_problems(graph, training)]
    problems += _unwritten(graph)
    for operator in graph.operators:
        problems += [f"operator {operator.name!r}: {text}" for text in _problems(operator)]
    if problems:
        raise InputErrors(problems[:MOST_REPORTED])
    if repeat is None:
        return graph
    from nest.graph.repeat import repeated

    return repeated(graph, repeat)


def sequence_length(source: Any) -> int:
    """Return the tokens of the graph's sample; 0: it has no sequence.

    Raises:
        InputErrors: the mapping is no operator graph.
    """
    return max(_lengths(structure(held_graph(source), OperatorGraph), "sequence"), default=0)


def _repeat(source: Mapping[str, Any]) -> int | None:
    """Return the model's blocks, if stated beside a graph with fewer; else None.

    Raises:
        InputErrors: an option is misspelt, has an impossible value, or belongs to no operator graph.
    """
    problems = []
    for key in map(str, source):
        near = get_close_matches(key, OPTIONS, 1, 0.7) if key not in OPTIONS else []
        problems += [f"unknown key {key!r:.40}; did you mean `{near[0]}`?" for _ in near]
    repeat = source.get("repeat")
    if repeat is not None and (isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1):
        problems.append(f"repeat must be a number of blocks, 1 or more; got {repeat!r:.40}.")
    for key in OPTIONS[1:]:
        if source.get(key) is not None:
            problems.append(f"`{key}` is for exported programs; an operator graph says it itself.")
    if problems:
        raise InputErrors(problems)
    return repeat


def _lengths(graph: OperatorGraph, axis: str) -> set[int]:
    return {size for o in graph.operators for shape in o.shapes for name, size in shape if name == axis}


def _graph_problems(graph: OperatorGraph, training: Training) -> Iterator[str]:
    for axis, expected in (("batch", 1), (OTHER_SAMPLES, 1), ("sequence", training.sequence_length)):
        lengths = _lengths(graph, axis)
        if lengths - {expected}:
            wanted = "1 sample" if axis != "sequence" else f"training.sequence_length, {expected}"
            lengths_text = ", ".join(map(str, sorted(lengths)))
            yield f"axis `{axis}` is {lengths_text} long; the graph must be that of {wanted}."
    unknown = sorted(set(graph.blocks) - set(graph.layers))
    if unknown:
        yield f"blocks: {', '.join(unknown)} are not among the layers."
    if len(set(graph.layers)) < len(graph.layers):
        yield "layers: names must be unique."
    for name, operators in zip(graph.layers, graph.by_layer, strict=True):
        if not operators:
            yield f"layers: {name} has no operators; leave it out."
    for crossing in graph.layer_tensors:
        if crossing.consumers[0] < crossing.producer:
            reader, maker = graph.layers[crossing.consumers[0]], graph.layers[crossing.producer]
            yield f"layers: {reader} reads from {maker}, which comes later; list the layers in order."


def _unwritten(graph: OperatorGraph) -> Iterator[str]:
    """Yield differentiable tensors that no operator writes, though gradients flow back to them."""
    written = {tensor.name for operator in graph.operators for tensor in operator.outputs}
    names: set[str] = set()
    for operator in graph.operators:
        for tensor in operator.inputs:
            if tensor.differentiable and tensor.name not in written | names:
                names.add(tensor.name)
                near = get_close_matches(tensor.name, sorted(written), 1)
                hint = f"did you mean {near[0]!r:.80}? " if near else ""
                yield (
                    f"operator {operator.name!r}: no operator writes tensor {tensor.name!r:.80}; {hint}"
                    "What comes with the data says `differentiable: false`."
                )


def _problems(operator: Operator) -> Iterator[str]:
    """Yield the reasons why `operator` cannot be planned, as sentences that follow its name."""
    tensors = (*operator.inputs, *operator.outputs)
    near = get_close_matches(operator.kind, KINDS, 1, 0.75) if operator.kind not in KINDS else []
    if near:
        yield f"kind {operator.kind!r:.40} is not known; did you mean {near[0]}?"
    if any(size < 1 for shape in operator.shapes for _, size in shape):
        yield "an axis is shorter than 1."
    if any(tensor.itemsize <= 0 for tensor in tensors):
        yield "the itemsize of a tensor must be positive."
    if operator.flops_per_point < 0 or operator.backward_flops_ratio < 0:
        yield "its FLOP must not be negative."
    if operator.passes < 1:
        yield "its kernel must go over its tensors at least once: passes must be 1 or more."
    if any(parameter.frozen or parameter.itemsize is not None for parameter in operator.parameters):
        yield "training.trainable freezes layers; leave `frozen` and `itemsize` of parameters out."
    if operator.collective is not None:
        yield "collectives are added by strategies; give the graph of a single device."
    unknown = sorted(set(operator.saves) - {tensor.name for tensor in tensors})
    if unknown:
        yield f"it saves {', '.join(unknown)}, which it neither reads nor writes."
    stray = sorted(set(operator.contracted) - {axis for axis, _ in operator.space})
    if stray:
        yield f"it contracts {', '.join(stray)}, which its space lacks."
