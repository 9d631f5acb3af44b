"""Tensors between a module's code on each rank and their placement over the ranks of tensor parallelism."""

from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate


class Dense(torch.autograd.Function):  # type: ignore[misc]
    """A tensor with a contiguous gradient, as sent and placed tensors need.

    Gradients of placed tensors are added up over ranks.
    """

    @staticmethod
    def forward(_: Any, source: Any) -> Any:
        """The tensor."""
        return source.view_as(source)

    @staticmethod
    def backward(_: Any, gradient: Any) -> Any:
        """Its gradient."""
        gradient = dense(gradient)
        partial = isinstance(gradient, DTensor) and any(each.is_partial() for each in gradient.placements)
        return gradient.redistribute(placements=[Replicate()]) if partial else gradient


def dense(each: Any) -> Any:
    """A contiguous tensor; of a placed one the ranks' shares too, whose strides it may not tell."""
    each = each.contiguous()
    local = each.to_local() if isinstance(each, DTensor) else each
    if local.is_contiguous():
        return each
    return DTensor.from_local(
        local.contiguous(), each.device_mesh, each.placements, run_check=False, shape=each.shape, stride=each.stride()
    )


def whole(each: Any) -> Any:
    """A plain tensor in place of a placed one, the same on every rank; anything else stays."""
    return Dense.apply(placed_as(each, Replicate()).to_local()) if isinstance(each, DTensor) else each


def placed(each: Any, mesh: DeviceMesh) -> Any:
    """A tensor of real numbers that is the same on every rank, as a placed one; anything else stays."""
    if not isinstance(each, torch.Tensor) or isinstance(each, DTensor) or not each.is_floating_point():
        return each
    return DTensor.from_local(each, mesh, [Replicate()], run_check=False)


def placed_as(each: Any, placement: Placement) -> Any:
    """A placed tensor in another placement; anything else stays."""
    if not isinstance(each, DTensor) or each.placements == (placement,):
        return each
    return each.contiguous().redistribute(placements=[placement])
