"""PyTorch Lightning: a module with `ModelParallelStrategy`, settings of `Trainer` and how blocks are wrapped.

Names: lightning 2.6.6, pytorch/strategies/model_parallel.py. Nothing there holds gradients back between micro-batches,
so that FSDP2 reduces them after each.
"""

from collections.abc import Mapping

from nest.deployment import Deployment
from nest.spec import PlanDocument, Problem
from nest_frameworks.common import checked, data_ranks, even_machines, problem_of, samples
from nest_frameworks.limits import Asked, gradient_format, sharded

PYTHON_FILE = "lightning_plan.py"

FORMATS = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`lightning_plan.py`.

    Raises:
        InputError: Lightning cannot run the plan, and why.
    """
    problem = problem_of(plan)
    shape = checked(plan, sharded.lightning(Asked.of(problem)), "Lightning")
    return {PYTHON_FILE: _module(shape, problem, even_machines(plan, "Lightning"))}


def _module(shape: Deployment, problem: Problem, machines: int) -> str:
    training = problem.training
    return f'''"""A plan for Lightning: its strategy, its trainer, and how the blocks of a model are wrapped.

    trainer = lightning.Trainer(accelerator="gpu", strategy=strategy(), **TRAINER)

Tensor parallelism of a layer (`parallelize_module` over the mesh's "tensor_parallel") is for the model's own code.
"""

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

DATA_PARALLEL, TENSOR_PARALLEL = {data_ranks(shape)}, {shape.tp}
SEQUENCE_PARALLEL = {shape.sequence_parallel!r}

TRAINER = {{
    "num_nodes": {machines},
    "devices": {shape.world_size // machines},
    "accumulate_grad_batches": {shape.micro_batches},
    "precision": "32-true",
}}
"""Weights stay in single precision; `POLICY` says what products run in."""

BATCH_SIZE = {samples(shape)}  # samples of one data-parallel rank: `batch_size` of the data loader
GLOBAL_BATCH = {shape.global_batch}  # samples of a step
SEQUENCE_LENGTH = {shape.sequence_length!r}
RECOMPUTE = {shape.recomputed(shape.runs[0])}  # blocks that run again, the first ones
RESHARD = {shape.zero[0] == 3!r}  # whether weights are gathered again for the backward pass

POLICY = MixedPrecisionPolicy(
    param_dtype={FORMATS[training.precision]}, reduce_dtype={FORMATS[gradient_format(training)]}
)


def strategy():
    """The strategy to pass to `Trainer`."""
    return ModelParallelStrategy(data_parallel_size=DATA_PARALLEL, tensor_parallel_size=TENSOR_PARALLEL)


def wrap(model, blocks, mesh):
    """Wrap a model; call it at the end of `configure_model`, once the layers are split.

    Args:
        model: all of it.
        blocks: the list of its transformer blocks (`torch.nn.ModuleList`), whose items are replaced.
        mesh: `self.device_mesh`.
    """
    sharded = {{"mesh": mesh["data_parallel"], "mp_policy": POLICY, "reshard_after_forward": RESHARD}}
    for index, block in enumerate(blocks):
        if index < RECOMPUTE:
            blocks[index] = block = checkpoint_wrapper(block)
        fully_shard(block, **sharded)
    fully_shard(model, **sharded)
'''
