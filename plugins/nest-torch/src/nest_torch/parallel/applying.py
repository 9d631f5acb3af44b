"""A plan applied to a module."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import evolve
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from nest.deployment import Deployment
from nest.deployment.deployment import Run
from nest.errors import InputError
from nest.graph import OperatorGraph
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import PlanDocument, Problem
from nest_torch.capturing import capture
from nest_torch.parallel import agreement, contexts, experts, filling, layout, sharding, shares, stages
from nest_torch.parallel.flow import copy_sharing, recorded
from nest_torch.parallel.pipelines import pipeline_schedule
from nest_torch.parallel.placed import Placed
from nest_torch.parallel.splits import Split, splits
from nest_torch.parallel.tensors import TensorParallel
from nest_torch.parallel.training import Loss, Parallel, Pipeline, cross_entropy
from nest_torch.parallel.trial import Subject, tried
from nest_torch.parallel.tying import between_stages, tied_names


def apply(
    model: nn.Module,
    plan: Any,
    mesh: DeviceMesh | None = None,
    *,
    example_inputs: Any = None,
    loss: Loss = cross_entropy,
    policy: Any = None,
    compiled: Mapping[str, Any] | None = None,
    check: bool = True,
) -> Parallel:
    """Split, place, recompute and shard a module as a plan says. Its parameters are the ranks' own afterwards.

    Every rank calls it with the same weights (made from one seed, or on the meta device), before the optimizer is made.
    A module on the meta device gets weights from its own code and the random state of the first rank.

    Args:
        model: a module whose parts the plan's layers name; those of one of nest's own models are matched in order.
        plan: a plan, as a document, a mapping, or the path of its file.
        mesh: what `nest_torch.mesh(plan)` makes; None: that, on the device of the module.
        example_inputs: one sample or more, by name or in order, of which only sizes count; needed for a pipeline, and
            for plans of models that were not captured.
        loss: mean loss of the first tensor that the module returns, and targets; left out, the cross-entropy of its
            last dimension, class numbers being the targets.
        policy: number formats of FSDP (`torch.distributed.fsdp.MixedPrecisionPolicy`).
        compiled: what `torch.compile` is given, by keyword, for each block, before FSDP wraps it; None: blocks run as
            they are.
        check: run two micro-batches of random samples on a copy of the module first, split as planned and in one piece,
            and refuse what differs. The loss of a trial is its own: `loss` must be a mean over samples. False: start
            at once, as after `nest_torch.check`.

    Raises:
        InputError: the plan asks for what the module, or PyTorch, does not have, or does not train it as one process
            does; on every rank.
    """
    document = layout.plan_document(plan)
    shape = layout.deployment_of(document)
    if compiled is not None and shape.tp * shape.ep * shape.etp > 1:
        raise InputError(
            "PyTorch's compiler loses the layouts of split parameters (DTensor) on the way back; leave out `compiled`, "
            "or plan with tp and ep 1."
        )
    device = next(model.parameters()).device
    kind = device.type if device.type != "meta" else ("cuda" if torch.cuda.is_available() else "cpu")
    found = layout.meshes(shape, mesh if mesh is not None else layout.mesh(document, kind))
    layers = [name for run in shape.runs for name in run.layers]
    blocks = stages.blocks_of(model, layers)
    split = _splits(model, document, blocks, shape, example_inputs)
    place = torch.device(kind, torch.cuda.current_device()) if kind == "cuda" else torch.device(kind)
    subject = Subject(model, shape, blocks, split, _example(model, example_inputs, shape) if check else example_inputs)
    subject = _feasible(subject, found, place, check)
    runs = [run for run in shape.runs if run.stage == found.dense["pp"].get_local_rank()]
    tied, bare = tied_names(model), shares.bare(model) if shape.stages > 1 else model
    whole = shares.bare(model) if device.type == "meta" else model
    subject = evolve(subject, inputs=example_inputs)
    parallel = parallel_of(subject, runs, found, loss, place, policy, compiled)
    if device.type == "meta":
        agreement.together(lambda: filling.fill(whole, parallel.stages, list(blocks.values()), place))
    if shape.stages > 1:
        parallel._pipeline = _pipeline(parallel, document, shape, found, place, blocks, bare)
        pipeline_schedule(parallel.stages, document, shape, found, loss, place)  # Refuses what PyTorch lacks.
        parallel._tied = between_stages(parallel.stages, tied, shape, found)
    return parallel


def _pipeline(
    parallel: Parallel,
    plan: PlanDocument,
    shape: Deployment,
    meshes: layout.Meshes,
    device: Any,
    blocks: Mapping[str, str],
    bare: nn.Module,
) -> Pipeline:
    """Make schedules of the plan for any number of micro-batches, and for inputs of any sizes."""

    def made(given: Mapping[str, Any], count: int, training: bool) -> Any:
        flow = recorded(bare if training else copy_sharing(bare).eval(), given, blocks)
        fewer = evolve(shape, micro_batches=count)
        return pipeline_schedule(parallel.stages, plan, fewer, meshes, parallel.loss, device), flow

    return made


def _feasible(subject: Subject, meshes: layout.Meshes, place: Any, check: bool) -> Subject:
    """A module split so that its code runs: on shares of heads and widths, else on placed tensors."""
    possible = ways(subject)
    for way in possible if check else ():
        try:
            tried(way, lambda one: parallel_of(one, one.shape.runs, meshes, cross_entropy, place), meshes, place)
        except InputError as error:
            if way is possible[-1] or isinstance(error, agreement.UnheardError):
                raise
        else:
            return way
    return possible[0]


def ways(subject: Subject) -> list[Subject]:
    """The ways in which a module may be split, the fastest first."""
    if subject.shape.tp == 1:
        return [subject]
    placed = evolve(subject, placed=True)
    inputs = stages.named_inputs(subject.model, subject.inputs) if subject.inputs is not None else None
    if inputs is not None and shares.refused(subject.model, subject.split, list(subject.blocks.values()), inputs):
        return [placed]
    return [subject, placed]


def parallel_of(
    subject: Subject,
    runs: Sequence[Run],
    meshes: layout.Meshes,
    loss: Loss,
    place: Any,
    policy: Any = None,
    compiled: Mapping[str, Any] | None = None,
) -> Parallel:
    """Some runs of the layers of a module on this rank, split and sharded, without a schedule."""
    shape, model = subject.shape, subject.model
    made = [model] if shape.stages == 1 else _cut(model, shape, runs, subject.blocks, subject.inputs, place)
    for stage, run in zip(made, runs, strict=True):
        _split_run(stage, run, meshes, subject, policy, compiled)
    return Parallel(
        made,
        meshes,
        loss,
        agreement.data_rank(meshes),
        shape.data_parallel,
        shape.micro_batches * _samples(shape),
        _samples(shape),
        "position_ids" in _parameters_of(model),
    )


def _example(model: nn.Module, inputs: Any, shape: Deployment) -> dict[str, Any]:
    """Inputs for a trial of the module: its example inputs, else token ids."""
    if inputs is not None:
        return stages.named_inputs(model, inputs)
    if not shape.sequence_length:
        raise InputError("apply tries the module before it starts; give it example_inputs.")
    return stages.named_inputs(model, torch.zeros(1, shape.sequence_length, dtype=torch.long))


def _samples(shape: Deployment) -> int:
    """Samples of a micro-batch on one data-parallel rank."""
    return shape.micro_batch // shape.degree("batch")


def _splits(
    model: nn.Module, plan: PlanDocument, blocks: Mapping[str, str], shape: Deployment, inputs: Any
) -> dict[str, Split]:
    if shape.tp * shape.ep * shape.etp == 1:
        return {}
    return splits(_graph(model, plan, blocks, inputs), model)


def _graph(model: nn.Module, plan: PlanDocument, blocks: Mapping[str, str], inputs: Any) -> OperatorGraph:
    """The plan's graph where it was captured of this module; else the module is captured here."""
    problem = structure(plan.problem, Problem)
    if problem.model is not None and all(layer == path for layer, path in blocks.items()):
        importers = registry().model_importers().values()
        return next(each for each in importers if each.accepts(problem.model)).load(problem.model, problem.training)
    if inputs is None:
        raise InputError("the plan is not of a captured module, so apply needs example_inputs to see how it is built.")
    return capture(model, (), keywords=stages.named_inputs(model, inputs))


def _cut(
    model: nn.Module, shape: Deployment, runs: Sequence[Run], blocks: Mapping[str, str], inputs: Any, device: Any
) -> list[nn.Module]:
    if inputs is None:
        raise InputError("a pipeline is cut along the calls of a forward pass, so apply needs example_inputs.")
    given = _of_micro_batch(stages.named_inputs(model, inputs), shape, "position_ids" in _parameters_of(model))
    flow = recorded(model, given, blocks)
    copies = [copy_sharing(model) if len(runs) > 1 else model for _ in runs]
    made = [stages.Stage(each, flow, run.layers, device) for each, run in zip(copies, runs, strict=True)]
    taken: set[int] = set()
    for stage in made:  # A stage scales and reduces the gradients of its own parameters only.
        own: dict[int, nn.Parameter] = {}
        for path, parameter in list(stage.named_parameters(remove_duplicate=False)):
            if id(parameter) in taken:
                parent, _, name = path.rpartition(".")
                if id(parameter) not in own:
                    own[id(parameter)] = nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
                setattr(stage.get_submodule(parent), name, own[id(parameter)])
        taken.update(id(parameter) for parameter in stage.parameters())
    return made


def _of_micro_batch(given: Mapping[str, Any], shape: Deployment, positions: bool) -> dict[str, Any]:
    """Inputs of the sizes that a rank sees."""
    samples = _samples(shape)

    def sized(each: Any) -> Any:
        return each[:1].expand(samples, *each.shape[1:]) if isinstance(each, torch.Tensor) and each.dim() else each

    inputs = {name: sized(each) for name, each in given.items()}
    if shape.cp == 1:
        return inputs
    length = contexts.length_of(inputs)
    inputs = contexts.with_positions(inputs, length, positions)
    return {
        name: each[:, : length // shape.cp]
        if isinstance(each, torch.Tensor) and each.dim() > 1 and each.shape[1] == length
        else each
        for name, each in inputs.items()
    }


def _split_run(
    stage: nn.Module, run: Run, meshes: layout.Meshes, subject: Subject, policy: Any, compiled: Mapping[str, Any] | None
) -> None:
    shape, split, blocks = meshes.shape, subject.split, subject.blocks
    model: Any = stage.module if isinstance(stage, stages.Stage) else stage
    own = [model.get_submodule(blocks[name]) for name in run.layers if name in blocks]
    if shape.tp > 1:
        way = Placed if subject.placed else TensorParallel
        way(model, meshes.dense["tp"], split, list(blocks.values()), shape.sequence_parallel).apply()
        stage.mesh = meshes.dense["tp"] if subject.placed else None
    experts.split_experts(model, split, meshes)
    for place, block in enumerate(own):
        if shape.cp > 1:
            contexts.gather_keys(block, meshes.dense["cp"])
        if shape.recompute[run.stage] == "full" and place < (shape.recompute_layers[run.stage] or len(own)):
            sharding.recompute(block)
        if compiled is not None:
            block.compile(**compiled)
    routed = [path for path, each in split.items() if each.expert]
    inside = [path for path in routed if any(path.startswith(f"{blocks[n]}.") for n in run.layers if n in blocks)]
    sharding.shard(stage, own, [model.get_submodule(path) for path in inside], meshes, policy)


def _parameters_of(model: nn.Module) -> Mapping[str, Any]:
    import inspect

    return inspect.signature(model.forward).parameters
