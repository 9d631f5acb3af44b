"""Running statistics of batch norms that see the samples of all data-parallel ranks, as in one process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from nest_torch.parallel.agreement import data_rank
from nest_torch.parallel.layout import Meshes


@contextmanager
def merged(parts: Sequence[nn.Module], meshes: Meshes) -> Iterator[None]:
    """Give every data-parallel rank the statistics of one process that ran the ranks' micro-batches in their order.

    A batch norm of momentum `m` makes `r` to `(1 - m) r + m s` with what it sees. After `k` times on each rank, rank
    `d` has `a r + s[d]` with `a = (1 - m)^k`, and one process that ran all `n` has `a^n r + sum of a^(n-1-d) s[d]`.
    """
    norms = [
        each
        for stage in parts
        for each in stage.modules()
        if isinstance(each, nn.modules.batchnorm._BatchNorm) and each.training and each.running_mean is not None
    ]
    ranks = meshes.shape.data_parallel
    if ranks == 1 or not norms:
        yield
        return
    before = [(each.running_mean.clone(), each.running_var.clone(), int(each.num_batches_tracked)) for each in norms]
    yield
    rank = data_rank(meshes)
    for norm, (mean, variance, count) in zip(norms, before, strict=True):
        if norm.momentum is None:  # The mean of all there were.
            continue
        times = int(norm.num_batches_tracked) - count
        kept = (1 - norm.momentum) ** times
        for held, start in ((norm.running_mean, mean), (norm.running_var, variance)):
            _replace(held, kept**ranks * start, kept ** (ranks - 1 - rank) * (held - kept * start), meshes)
        norm.num_batches_tracked.fill_(count + times * ranks)


def _replace(held: Any, start: Any, share: Any, meshes: Meshes) -> None:
    for name in ("dp_replicate", "dp_shard"):
        dist.all_reduce(share, group=meshes.dense[name].get_group())
    with torch.no_grad():
        held.copy_(start + share)
