"""A module planned for PyTorch: captured, and planned among what `nest_torch.apply` runs."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from nest import solve
from nest.deployment.pytorch_schedules import RUNS
from nest.errors import InputError
from nest.graph import OperatorGraph
from nest.spec import PlanDocument
from nest_torch.capturing import Axes, capture
from nest_torch.parallel import layout, shares
from nest_torch.parallel.flow import recorded
from nest_torch.parallel.pipelines import WHOLE
from nest_torch.parallel.rehearsal import Rehearsal, fewest
from nest_torch.parallel.splits import TENSOR, Split, splits
from nest_torch.parallel.stages import blocks_of, named_inputs

TARGET = "pytorch"
"""Name of the exporter whose limits hold."""

KEYS = ("training", "strategies", "search", "constraints", "fixed", "costs", "collectives")
"""Sections of a problem that may be given beside model and cluster."""

ADDED_TO = ("training", "strategies", "search")
"""Sections of `KEYS` to which `plan` adds keys."""


def plan(
    model: Any,
    example_inputs: Any,
    cluster: str | Mapping[str, Any],
    *,
    axes: Sequence[Axes] | None = None,
    fused: bool = True,
    **problem: Any,
) -> PlanDocument:
    """The fastest plan of a module on a cluster, among those that `nest_torch.apply` runs; a plan like any other.

    Args:
        model: a `torch.nn.Module`; on the meta device its weights take no memory.
        example_inputs: one sample or more, by name or in order, of which only sizes and types count; the first
            dimension is the batch.
        cluster: a name that `nest clusters` lists, or the section of a problem.
        axes: names of the dimensions of each tensor among the inputs, as of `nest_torch.capture`.
        fused: whether operators are those of compiled kernels; otherwise each call is one, as in eager mode.
        problem: further sections of a problem, such as `training={"global_batch": 64}` (docs/reference/problem.md).

    Raises:
        InputError: the module cannot be captured, or the problem cannot be used.
    """
    strange = next((key for key in problem if key not in KEYS), None)
    if strange is not None:
        raise InputError(f"{strange!r} is no section of a problem that plan takes; it takes {', '.join(KEYS)}.")
    bare = next((key for key in ADDED_TO if key in problem and not isinstance(problem[key], Mapping)), None)
    if bare is not None:
        raise InputError(f"{bare} must hold keys and values, is {problem[bare]!r:.40}.")
    device = next(model.parameters()).device
    inputs = {
        name: each.to(device) if isinstance(each, torch.Tensor) else each
        for name, each in named_inputs(model, example_inputs).items()
    }
    loss = problem.get("training", {}).get("loss") or "unfused"
    graph = capture(model, (), keywords=inputs, axes=axes, fused=fused, loss=loss)
    rehearsal = Rehearsal(model, inputs)
    never = rehearsal.untrainable()
    if never is not None:
        raise InputError(f"no plan trains {type(model).__name__} as one process does: it {never}.")
    split = splits(graph, model)
    why = _strategies(rehearsal, graph, split)
    _refuse(problem, why)
    training = {"precision": _precision(model), **problem.get("training", {})}
    training["schedule"] = _schedules(training.get("schedule"))
    given = problem.get("constraints", [])
    constraints = [
        *_constraints(graph),
        *(f"{name} == 1" for name in ("pp", "dp") if name in why),
        *(["recompute == 'none'"] if "recompute" in why else []),
        *(given if isinstance(given, (list, tuple)) else [given]),
    ]
    asked = {
        **problem,
        "nest": 1,
        "model": graph,
        "cluster": {"name": cluster} if isinstance(cluster, str) else dict(cluster),
        "training": training,
        "search": {"target": TARGET, **problem.get("search", {})},
        "strategies": {
            **{name: [1] for name in why if name not in ("pp", "dp", "recompute")},
            **problem.get("strategies", {}),
        },
    }
    return _admitted(rehearsal, split, asked, constraints)


def _admitted(
    rehearsal: Rehearsal, split: Mapping[str, Split], asked: Mapping[str, Any], constraints: Sequence[str]
) -> PlanDocument:
    """The fastest plan under which the module runs.

    Raises:
        InputError: under each plan that the problem leaves, it does not.
    """
    told = ""
    while True:
        found = solve({**asked, "constraints": list(constraints)})
        if found.candidate is None:
            if told:
                raise InputError(f"{told}. Leave more open, or change that part of the module.")
            return found
        shape = layout.deployment_of(found)
        reason = rehearsal.refused(split, shape)
        if reason is None:
            return found
        causes = fewest(shape, partial(rehearsal.refused, split))
        told = f"the module does not run with {' and '.join(causes) or 'this plan'}: {reason}"
        if not causes:
            raise InputError(f"{told}. Change that part of the module.")
        constraints = [*constraints, f"not ({' and '.join(causes)})"]


def _schedules(asked: Any) -> Any:
    """Schedules that `apply` runs as they are planned; what names none is left for `solve` to refuse.

    Raises:
        InputError: none is among those asked for.
    """
    named = WHOLE if asked is None else [asked] if isinstance(asked, str) else asked
    if not named or not isinstance(named, (list, tuple)):
        return asked
    found = [name for name in named if name in WHOLE or name not in RUNS]
    if not found:
        raise InputError(
            f"training.schedule: apply computes both kinds of gradients at once, so {named[0]} would take longer than "
            f"planned; plan with {', '.join(WHOLE)}."
        )
    return found


def _precision(model: nn.Module) -> str:
    """The format that most parameters have."""
    sizes = {"torch.float32": 0, "torch.bfloat16": 0, "torch.float16": 0}
    for parameter in model.parameters():
        sizes[str(parameter.dtype)] = sizes.get(str(parameter.dtype), 0) + parameter.numel()
    most = max(sizes, key=lambda name: sizes[name])
    return {"torch.bfloat16": "bf16", "torch.float16": "fp16"}.get(most, "fp32")


def _strategies(rehearsal: Rehearsal, graph: OperatorGraph, split: Mapping[str, Split]) -> dict[str, str]:
    """Strategies that the module's code leaves no room for, and why."""
    found = {}
    model, inputs = rehearsal.model, rehearsal.inputs
    if "position_ids" not in inspect.signature(model.forward).parameters:
        found["cp"] = "it takes no position_ids, so ranks could not tell their tokens"
    own = [path for path, each in split.items() if each.cuts and not each.expert]
    blocks = blocks_of(model, graph.layers)
    refused = shares.refused(model, split, list(blocks.values()), inputs) if own else None
    refused = refused and shares.refused_placed(model, split, list(blocks.values()), inputs)
    if refused is not None:
        found["tp"] = f"its code runs neither on a share of the heads or widths nor on placed tensors ({refused})"
    written = rehearsal.written_buffers()
    if written:
        told = f"its forward pass changes {written[0]}, of which each rank would keep another"
        found |= dict.fromkeys(("dp", "batch", "cp"), told)
    again = [n for n in rehearsal.written_buffers(True) if n.startswith(tuple(f"{path}." for path in blocks.values()))]
    if again:
        found["recompute"] = f"a second forward pass of a block would change {again[0]} once more"
    try:
        flow = recorded(model, inputs, blocks)
    except InputError as error:
        found["pp"] = str(error).rstrip(".")
    else:
        parts = tuple(f"{call.path}." for call in flow.calls)
        if not all(name.startswith(parts) for name in written):
            found["pp"] = f"its forward pass changes {written[0]}, of which each stage would keep another"
    return found


def _refuse(asked: Mapping[str, Any], why: Mapping[str, str]) -> None:
    """Refuse degrees that the problem asks for and the module's code leaves no room for."""
    for name, reason in why.items():
        for section in ("fixed", "strategies"):
            degrees = asked[section].get(name, 1) if isinstance(asked.get(section), Mapping) else 1
            every = degrees if isinstance(degrees, (list, tuple)) else [degrees]
            modes = [each for each in every if name == "recompute" and isinstance(each, str)]
            if any(each != "none" for each in modes) or any(each > 1 for each in every if isinstance(each, int)):
                raise InputError(f"{section}.{name}: the module cannot be split so, because {reason}.")


def _constraints(graph: OperatorGraph) -> Iterator[str]:
    """Degrees that divide what is split: `apply` holds no head twice."""
    sizes = {
        size
        for operator in graph.operators
        for parameter in operator.parameters
        for axis, size in parameter.shape
        if axis in TENSOR and axis != "vocab"
    }
    yield from (f"{size} % tp == 0" for size in sorted(sizes))
    if any(parameter.group == "expert" for operator in graph.operators for parameter in operator.parameters):
        yield "etp <= tp"
