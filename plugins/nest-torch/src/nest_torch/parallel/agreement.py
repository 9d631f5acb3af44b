"""What ranks of one replica must have in common in each step: samples, and the random numbers of dropout."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from nest.errors import InputError
from nest_torch.parallel.layout import Meshes

if TYPE_CHECKING:
    from nest_torch.parallel.applying import Parallel


def data_rank(meshes: Meshes) -> int:
    """The number of a rank among those that are given different samples."""
    dense = meshes.dense
    return int(dense.get_local_rank("dp_replicate") * dense["dp_shard"].size() + dense.get_local_rank("dp_shard"))


def same_samples(given: Mapping[str, Any], targets: Any, parallel: "Parallel") -> None:
    """Refuse samples of another number than the plan's, and in the first step ranks of one replica that differ.

    Raises:
        InputError: on every rank.
    """
    if parallel._agreed:
        return
    tensors = {"targets": targets, **{n: e for n, e in given.items() if isinstance(e, torch.Tensor)}}
    sums = {name: float(ordered(each)) for name, each in tensors.items() if each.device.type != "meta"}
    short = [name for name, each in tensors.items() if each.dim() and each.shape[0] != parallel.batch]
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, (parallel.data_rank, sums, short))
    strange = next((short[0] for _, _, short in every if short), None)
    if strange is not None and (strange == "targets" or parallel.meshes.shape.stages > 1):
        raise InputError(
            f"{strange} must have {parallel.batch} rows, the samples of a step on each data-parallel rank "
            "(`parallel.batch`)."
        )
    first: dict[int, Any] = {}
    for rank, (place, found, _) in enumerate(every):
        other = first.setdefault(place, found)
        name = next((name for name in other if repr(found.get(name)) != repr(other[name])), None)
        if name is not None:
            raise InputError(
                f"rank {rank} was given other {name} than a rank that holds a part of the same replica; draw samples "
                "by `parallel.data_rank`."
            )
    parallel._agreed = True


def same_random_state(meshes: Meshes) -> None:
    """Give the ranks of tensor parallelism one random state: dropout drops the same of what all of them hold."""
    if meshes.shape.tp == 1:
        return
    group = meshes.dense["tp"].get_group()
    cuda = meshes.dense.device_type == "cuda"
    state = (torch.cuda.get_rng_state() if cuda else torch.get_rng_state()).to(meshes.dense.device_type)
    dist.broadcast(state, dist.get_global_rank(group, 0), group=group)
    (torch.cuda if cuda else torch).set_rng_state(state.cpu())


def ordered(each: Any) -> Any:
    """A sum that tells tensors apart, also by the order of their last dimension."""
    length = each.shape[-1] if each.dim() else 1
    return (each.detach().double() * torch.linspace(1, 2, length, device=each.device, dtype=torch.float64)).sum()
