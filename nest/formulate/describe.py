"""What a model is, in numbers: parameters, FLOP per token, activation bytes."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from nest.graph import Operator, OperatorGraph, axis_size
from nest.spec import Training


def describe(graph: OperatorGraph, training: Training) -> dict[str, Any]:
    """Describe the operator graph of one sample, in plain numbers that go into JSON as they are.

    `flops_per_token` is the forward pass by the convention of utilisation figures (PaLM, arXiv 2204.02311,
    appendix B): 2 FLOP per token and weight of every matrix product the token takes part in (the LM head
    too, the embedding look-up not, routed experts `top_k` times), and in each layer `2*heads*keys*(query-key
    channels + value channels)` for attention, that is `4*heads*head_dim*keys`. `keys` is the sequence length,
    or the window where that is shorter: the causal mask is not counted off. `executed_flops_per_token` is
    what kernels run.

    Args:
        graph: built for one sample.
        training: gives the sequence length.

    Returns:
        `parameters` (tied ones once), `active_parameters` (of the routed experts only the visited share),
        `layers` (transformer blocks), `flops_per_token`, and the rest of the keys below; activation bytes are
        those kept for the backward pass of one sample when nothing is recomputed.
    """
    tokens = training.sequence_length or 1
    blocks = frozenset(graph.blocks)
    rows = [
        {"block": name in blocks, **_layer(operators, tokens)}
        for name, operators in zip(graph.layers, graph.by_layer, strict=True)
    ]
    tables = _vocabulary_tables(graph)
    return {
        "family": graph.family,
        "parameters": graph.parameter_count,
        "active_parameters": sum(row["active_parameters"] for row in rows),
        "routed_expert_parameters": sum(row["routed_expert_parameters"] for row in rows),
        "input_embedding_parameters": tables["embedding"],
        "lm_head_parameters": tables["head"],
        "tied_embeddings": any(p.tied for operator in graph.operators for p in operator.parameters),
        "layers": len(graph.blocks),
        "sequence_length": tokens,
        "flops_per_token": graph.model_flops / tokens,
        "executed_flops_per_token": graph.flops / tokens,
        "layer_runs": _runs(graph.layers, rows),
        "assumptions": list(graph.assumptions),
    }


def _layer(operators: Sequence[Operator], tokens: int) -> dict[str, Any]:
    """Numbers of one layer."""
    learned = [(o, p) for o in operators for p in o.parameters if not p.tied]
    routed = [(o, p) for o, p in learned if p.group == "expert"]
    visited = sum(p.count * axis_size(o.space, "top_k") // axis_size(p.shape, "experts") for o, p in routed)
    parameters, experts = sum(p.count for _, p in learned), sum(p.count for _, p in routed)
    return {
        "parameters": parameters,
        "active_parameters": parameters - experts + visited,
        "routed_expert_parameters": experts,
        "flops_per_token": sum(o.model_flops for o in operators) / tokens,
        "activation_bytes": saved_bytes(operators),
    }


def saved_bytes(operators: Sequence[Operator]) -> float:
    """Bytes of the tensors `operators` keep for the backward pass, each counted once."""
    sizes = {t.name: t.bytes for o in operators for t in (*o.inputs, *o.outputs)}
    return sum(sizes[name] for name in sorted({name for o in operators for name in o.saves}))


def _vocabulary_tables(graph: OperatorGraph) -> dict[str, int]:
    """Weights of the word embedding and of the LM head (0 when it shares the embedding's)."""
    tables = {"embedding": 0, "head": 0}
    for operator in graph.operators:
        for parameter in operator.parameters:
            axes = {name for name, _ in parameter.shape}
            if "vocab" in axes and len(axes) > 1 and not parameter.tied:
                tables["embedding" if operator.kind == "embedding" else "head"] += parameter.count
    return tables


def _runs(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Consecutive layers with equal numbers, put together."""
    runs = []
    for row, group in groupby(zip(names, rows, strict=True), key=lambda layer: layer[1]):
        members = [name for name, _ in group]
        runs.append({"first": members[0], "last": members[-1], "count": len(members), **row})
    return runs
