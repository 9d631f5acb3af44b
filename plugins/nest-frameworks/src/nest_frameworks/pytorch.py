"""Plain PyTorch: a module with the device mesh, the stage map and the wrapping that a plan asks for.

What splits the layers themselves is left to training scripts, which import it.
`torch.distributed.device_mesh.init_device_mesh`, `torch.distributed.fsdp.fully_shard` and
`torch.distributed.pipelining` of PyTorch 2.13.
"""

from collections.abc import Mapping

from nest.deployment import Deployment
from nest.deployment.pytorch_schedules import CLASSES
from nest.spec import PlanDocument, Training
from nest_frameworks.common import checked, problem_of, samples, shard_ranks
from nest_frameworks.limits import Asked, gradient_format, sharded
from nest_frameworks.pipeline_actions import SCHEDULE_FILE

PYTHON_FILE = "pytorch_plan.py"


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`pytorch_plan.py`.

    Raises:
        InputError: PyTorch cannot run the plan, and why.
    """
    problem = problem_of(plan)
    shape = checked(plan, sharded.pytorch(Asked.of(problem)), "PyTorch", by_module=True)
    return {PYTHON_FILE: _module(shape, problem.training)}


def _module(shape: Deployment, training: Training) -> str:
    return "\n\n".join([_decisions(shape, training), _meshes(shape), _wrapping(shape)]) + (
        _pipeline(shape) if shape.stages > 1 else ""
    )


def _decisions(shape: Deployment, training: Training) -> str:
    within = shard_ranks(shape, "PyTorch") if shape.zero[0] > 0 else 1
    shard, context = {"dp_shard": within}, {"cp": shape.cp}
    sizes = {
        "pp": shape.stages,
        "dp_replicate": shape.data_parallel // within,
        **(shard | context if shape.zero[0] > 0 else context | shard),
        "tp": shape.tp,
    }
    experts = {
        "pp": shape.stages,
        "edp": shape.world_size // (shape.stages * shape.ep * shape.etp),
        "ep": shape.ep,
        "etp": shape.etp,
    }
    runs = "".join(f"    ({run.stage}, {list(run.layers)!r}),\n" for run in shape.runs)
    return f'''"""A plan for PyTorch: its mesh, its stages, and how their layers are wrapped.

Tensor and sequence parallelism of a layer, context parallelism of attention and the exchange of experts' tokens are
for the model's own code; their groups are the dimensions of the meshes.
"""

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

MESH = {sizes!r}
"""Ranks along each dimension; the last one is the fastest: rank order of the plan's rank table."""

EXPERT_MESH = {experts!r}
"""The same ranks as routed experts see them."""

PRECISION, GRADIENTS = {training.precision!r}, {gradient_format(training)!r}
"""What the plan has products run in and gradients reduced in: for the model's own policy, `wrap` sets none."""

SEQUENCE_PARALLEL = {shape.sequence_parallel!r}
MICRO_BATCH = {samples(shape)}  # samples of one data-parallel rank
MICRO_BATCHES = {shape.micro_batches}  # of a step
GLOBAL_BATCH = {shape.global_batch}  # samples; MICRO_BATCH * MICRO_BATCHES * data-parallel ranks
SEQUENCE_LENGTH = {shape.sequence_length!r}

RUNS = [
{runs}]
"""(pipeline rank, layers) in the order in which a micro-batch passes them."""

ZERO = {list(shape.zero)!r}
"""ZeRO stage of each pipeline rank."""

RECOMPUTE = {list(shape.recompute)!r}
"""Of each pipeline rank: `full` runs transformer blocks again, `none` keeps what they save."""

RECOMPUTE_LAYERS = {list(shape.recompute_layers)!r}
"""How many blocks of each run that is, the first ones; None: all."""
'''


def _meshes(shape: Deployment) -> str:
    """Experts lie over the same ranks in another order, so they need a mesh of their own."""
    experts = ""
    if shape.ep * shape.etp > 1:
        experts = '''

def build_expert_mesh(device_type: str = "cuda") -> DeviceMesh:
    """The mesh of routed experts, over the same ranks."""
    return init_device_mesh(device_type, tuple(EXPERT_MESH.values()), mesh_dim_names=tuple(EXPERT_MESH))
'''
    return (
        f'''
def build_mesh(device_type: str = "cuda") -> DeviceMesh:
    """The mesh of everything but routed experts; world size {shape.world_size}."""
    return init_device_mesh(device_type, tuple(MESH.values()), mesh_dim_names=tuple(MESH))
{experts}'''.rstrip()
        + "\n"
    )


def _wrapping(shape: Deployment) -> str:
    """Code that makes FSDP2 each ZeRO stage."""
    lines = ["return model"] if shape.data_parallel * shape.cp == 1 else [*_data_mesh(shape), *_SHARDING]
    return _WRAP.replace("{sharding}", "\n".join(f"    {line}" for line in lines))


def _data_mesh(shape: Deployment) -> list[str]:
    """Lines that make the mesh of FSDP: two dimensions where parameters are replicated, one where they are not.

    The ranks of context parallelism hold the same parameters, and go with those that shard, or, with ZeRO 0, with those
    that replicate; then one rank shards.
    """
    sharded = shape.zero[0] > 0
    replicated_ranks = (
        shape.data_parallel // shard_ranks(shape, "PyTorch") if sharded else shape.data_parallel * shape.cp
    )
    names, lines = ["dp_replicate", "dp_shard"], []
    if shape.cp > 1:
        widened = names[int(sharded)]
        names[int(sharded)] = f"{widened}_cp"
        lines.append(f"mesh[{widened!r}, 'cp']._flatten({names[int(sharded)]!r})")
    used = names if replicated_ranks > 1 else names[1:]
    return [*lines, f"data = mesh[{', '.join(map(repr, used))}]"]


_SHARDING = (
    "for path in blocks:",
    "    fully_shard(model.get_submodule(path), mesh=data, reshard_after_forward=zero == 3)",
    "return fully_shard(model, mesh=data, reshard_after_forward=zero == 3)",
)

_WRAP = '''
def wrap(blocks, model, mesh, pipeline_rank=0):
    """Checkpoint and shard one run of layers; call it after tensor parallelism has been applied.

    Args:
        blocks: transformer blocks of `model` in order, by the attribute path that replaces them.
        model: the module that holds them.
        mesh: what `build_mesh` returns.
        pipeline_rank: which of RUNS' pipeline ranks this is.
    """
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import fully_shard

    zero = ZERO[pipeline_rank]
    if RECOMPUTE[pipeline_rank] == "full":
        for path, block in list(blocks.items())[: RECOMPUTE_LAYERS[pipeline_rank]]:
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, checkpoint_wrapper(block))
{sharding}


def before_backward(model, micro_batch, pipeline_rank=0):
    """Without a pipeline, call this before each micro-batch: what FSDP2 does after it is what the ZeRO stage says.

    ZeRO 0 and 1 keep whole gradients and weights until the last micro-batch, ZeRO 2 whole weights, ZeRO 3 nothing.
    """
    last = micro_batch == MICRO_BATCHES - 1
    zero = ZERO[pipeline_rank]
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(last or zero >= 2)
        model.set_reshard_after_backward(last or zero == 3)
'''


def _pipeline(shape: Deployment) -> str:
    return f'''

def schedule(stages, loss_fn):
    """The pipeline schedule of one rank.

    Args:
        stages: this rank's `PipelineStage` objects: run `k` of RUNS is stage `k`.
        loss_fn: of outputs and labels.
    """
    from torch.distributed.pipelining.schedules import {_class(shape)}

{_schedule_call(shape)}'''


def _class(shape: Deployment) -> str:
    """The class of torch/distributed/pipelining/schedules.py; another order is loaded from the file."""
    return f"Schedule{CLASSES[shape.schedule]}" if shape.schedule in CLASSES else "_PipelineScheduleRuntime"


def _schedule_call(shape: Deployment) -> str:
    if shape.schedule not in CLASSES:
        return f"""    from pathlib import Path

    found = _PipelineScheduleRuntime(stages, n_microbatches=MICRO_BATCHES, loss_fn=loss_fn)
    found._load_csv(str(Path(__file__).resolve().with_name({SCHEDULE_FILE!r})))
    return found
"""
    given = "stages" if shape.chunks > 1 else "stages[0]"
    return f"    return {_class(shape)}({given}, n_microbatches=MICRO_BATCHES, loss_fn=loss_fn)\n"
