"""A module under tensor parallelism, without numbers or ranks: whether its code runs.

It runs on a rank's share of heads and widths, if it takes sizes from tensors; else on placed tensors.
"""

import copy
from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import implicit_replication
from torch.testing._internal.distributed.fake_pg import FakeStore

from nest_torch.parallel.flow import first_tensor
from nest_torch.parallel.placed import Placed
from nest_torch.parallel.splits import TENSOR, Split
from nest_torch.parallel.tensors import TensorParallel
from nest_torch.tracing import NarrowProducts, quiet


def refused(
    model: nn.Module, found: Mapping[str, Split], blocks: Sequence[str], inputs: Mapping[str, Any]
) -> str | None:
    """Try the code of a module on a share of its heads and widths; None if it runs, or cannot without numbers."""
    ranks, given = _fewest(found), _without_numbers(inputs)
    if ranks is None or not runs(bare(model), given):
        return None
    share = bare(model)
    TensorParallel(share, _Ranks(ranks), found, blocks, False).shrink()
    return _run_share(share, given)


def refused_placed(
    model: nn.Module, found: Mapping[str, Split], blocks: Sequence[str], inputs: Mapping[str, Any]
) -> str | None:
    """Try the code of a module on placed tensors, both passes; None if it runs, or cannot without numbers."""
    ranks, given = _fewest(found), _without_numbers(inputs)
    if ranks is None or dist.is_initialized() or not runs(bare(model), given):
        return None
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        share = bare(model)
        Placed(share, init_device_mesh("cpu", (ranks,)), found, blocks, False).apply()
        with implicit_replication(), quiet():
            return _run_share(share, given)
    finally:
        dist.destroy_process_group()


def _fewest(found: Mapping[str, Split]) -> int | None:
    """The least number of ranks above 1 that divides every split axis."""
    sizes = [cut.size for each in found.values() for cuts in each.cuts.values() for cut in cuts if cut.axis in TENSOR]
    common = gcd(*(size for size in sizes))
    return next((each for each in range(2, common + 1) if common % each == 0), None)


def _without_numbers(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each.to("meta") if isinstance(each, torch.Tensor) else each for name, each in inputs.items()}


def runs(model: nn.Module, given: Mapping[str, Any]) -> bool:
    """Return whether the code of a module runs, both passes."""
    try:
        _run(model, given)
    except Exception:  # Whatever the module's code raises is nothing of the split.
        return False
    return True


def _run_share(share: nn.Module, given: Mapping[str, Any]) -> str | None:
    entered: list[str] = []
    for path, module in share.named_modules():
        module.register_forward_pre_hook(lambda _, __, path=path: entered.append(path))
        module.register_forward_hook(lambda *_: (entered.pop(), None)[1])
    try:
        _run(share, given)
    except Exception as error:  # Whatever the module's code raises is what is told.
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return f"{entered[-1] if entered else 'the module'}: {reason[:200].rstrip('.')}"
    return None


def _run(model: nn.Module, given: Mapping[str, Any]) -> None:
    with NarrowProducts():
        made = first_tensor(model(**given))
    if made.requires_grad:
        made.float().mean().backward()


def bare(model: nn.Module) -> nn.Module:
    """A copy without memory for weights."""
    kept = {id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for p in model.parameters()}
    kept |= {id(each): each.detach().to("meta") for each in model.buffers()}
    return copy.deepcopy(model, kept)


class _Ranks:
    """As many ranks, none of which is there."""

    def __init__(self, count: int) -> None:
        self._count = count

    def size(self) -> int:
        """Number of elements."""
        return self._count
