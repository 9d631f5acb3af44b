"""A rank's share of a module under tensor parallelism, without numbers: whether its code takes the smaller sizes."""

import copy
from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

import torch
from torch import nn

from nest_torch.parallel.splits import TENSOR, Split
from nest_torch.parallel.tensors import TensorParallel


def refused(
    model: nn.Module, found: Mapping[str, Split], blocks: Sequence[str], inputs: Mapping[str, Any]
) -> str | None:
    """Try the code of a module on a share of its heads and widths; None if it runs, or cannot without numbers."""
    sizes = [cut.size for each in found.values() for cuts in each.cuts.values() for cut in cuts if cut.axis in TENSOR]
    common = gcd(*(size for size in sizes))
    ranks = next((each for each in range(2, common + 1) if common % each == 0), None)
    if ranks is None:
        return None
    given = {name: each.to("meta") if isinstance(each, torch.Tensor) else each for name, each in inputs.items()}
    try:
        _run(_bare(model), given)
    except Exception:  # Whatever the module's code raises is nothing of the split.
        return None
    share = _bare(model)
    TensorParallel(share, _Ranks(ranks), found, blocks, False).shrink()
    return _run_share(share, given)


def _run_share(share: nn.Module, given: Mapping[str, Any]) -> str | None:
    entered: list[str] = []
    for path, module in share.named_modules():
        module.register_forward_pre_hook(lambda _, __, path=path: entered.append(path))
        module.register_forward_hook(lambda *_: entered.pop() and None)
    try:
        _run(share, given)
    except Exception as error:  # Whatever the module's code raises is what is told.
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return f"{entered[-1] if entered else 'the module'}: {reason[:200].rstrip('.')}"
    return None


def _run(model: nn.Module, given: Mapping[str, Any]) -> None:
    with torch.no_grad():
        model(**given)


def _bare(model: nn.Module) -> nn.Module:
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
