"""Activation checkpointing, and the ZeRO stages as FSDP2 has them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from nest_torch.parallel.layout import Meshes
from nest_torch.parallel.tensors import replace_forward


def recompute(block: nn.Module) -> None:
    """Save the inputs of a block only, and run it again in the backward pass."""

    def around(forward: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*arguments, **keywords)
        return checkpoint(forward, *arguments, use_reentrant=False, **keywords)

    replace_forward(block, around)


def shard(
    model: nn.Module, blocks: Sequence[nn.Module], experts: Sequence[nn.Module], meshes: Meshes, policy: Any = None
) -> None:
    """Shard a run of layers over the ranks that hold the same parameters, as the plan's ZeRO stage says.

    ZeRO 0 replicates: a mesh whose shards are whole. ZeRO 1 gathers weights once a step, which `before_backward` and
    pipelines see to; ZeRO 3 for every pass of a block.

    Args:
        model: the run.
        blocks: its repeated layers, each gathered by itself.
        experts: modules of routed experts among them, which fewer ranks hold.
        meshes: of the plan.
        policy: number formats (`torch.distributed.fsdp.MixedPrecisionPolicy`); None: those of the parameters.
    """
    if meshes.data is None:
        return
    again = meshes.shape.zero[0] == 3
    formats = {} if policy is None else {"mp_policy": policy}
    apart = {each for each in model.parameters() if not each.dim()}  # FSDP has none; `complete_gradients` sees to them.
    for module in experts:
        if meshes.expert_data is None:
            apart.update(module.parameters(recurse=False))
        else:
            fully_shard(module, mesh=meshes.expert_data, reshard_after_forward=again, **formats)
    ignored = {"ignored_params": apart} if apart else {}
    for block in blocks:
        fully_shard(block, mesh=meshes.data, reshard_after_forward=again, **formats, **ignored)
    fully_shard(model, mesh=meshes.data, reshard_after_forward=again, **formats, **ignored)


def before_backward(model: nn.Module, zero: int, last: bool) -> None:
    """Do what FSDP does after a micro-batch: ZeRO 0 and 1 reduce gradients after the last, ZeRO 3 keeps no weights."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last or zero >= 2)
        model.set_reshard_after_backward(last or zero == 3)


def complete_gradients(parameters: Sequence[Any], meshes: Meshes) -> None:
    """Lay gradients out as their parameters: what ranks of tensor parallelism have of one is added up, once a step.

    Of single numbers, which FSDP does not take, ranks with other samples take the mean here.
    """
    for parameter in parameters:
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and gradient.placements != parameter.placements:
            parameter.grad = gradient.redistribute(parameter.device_mesh, parameter.placements)
    single = [each for each in parameters if not each.dim() and each.requires_grad]
    if single and meshes.data is not None:
        _take_means(single, meshes.data)


def _take_means(single: Sequence[Any], mesh: DeviceMesh) -> None:
    """Give every rank the mean gradients of single numbers, which the code may not have used on some ranks."""
    zero = torch.zeros((), dtype=torch.float64, device=single[0].device)
    sums = torch.stack([zero if each.grad is None else _local(each.grad).double() for each in single])
    used = torch.stack([zero + (each.grad is not None) for each in single])
    both = torch.stack([sums, used])
    for group in mesh.get_all_groups():
        dist.all_reduce(both, group=group)
    for parameter, total, ranks in zip(single, *both, strict=True):
        if ranks:  # Without a gradient anywhere an optimizer leaves it out, as in one process.
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            _local(parameter.grad).fill_(total / mesh.size())


def squared_norms(parameters: Sequence[tuple[str, Any]]) -> dict[str, torch.Tensor]:
    """The squared norm of the whole gradient of each parameter, whatever this rank holds of it.

    Every rank of the meshes of these parameters must call it, with the same parameters in the same order.
    """
    found: dict[str, torch.Tensor] = {}
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, parameter in parameters:
        zero = torch.zeros((), dtype=torch.float64, device=parameter.device)
        found[name] = zero if parameter.grad is None else _local(parameter.grad).double().pow(2).sum()
        groups.setdefault(tuple(_sharded_over(parameter)), []).append(name)
    for over, names in groups.items():
        total = torch.stack([found[name] for name in names])
        for group in over:
            dist.all_reduce(total, group=group)
        found.update(zip(names, total, strict=True))
    return found


def _local(each: Any) -> Any:
    return each.to_local() if isinstance(each, DTensor) else each


def _sharded_over(parameter: Any) -> Iterator[Any]:
    if isinstance(parameter, DTensor):
        for dim, placement in enumerate(parameter.placements):
            if not placement.is_replicate() and parameter.device_mesh.size(dim) > 1:
                yield parameter.device_mesh.get_group(dim)
