"""Common state of ranks: refusals, and in each step samples and the random numbers of dropout."""

import itertools
import time
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from nest.errors import InputError
from nest_torch.parallel.layout import Meshes

if TYPE_CHECKING:
    from nest_torch.parallel.training import Parallel

CHANGE = "Use another plan, or change that part of the module"

PATIENCE = 20.0
"""Seconds that a rank that has failed waits for the others, which may wait for it."""

_NUMBERS = itertools.count()


class UnheardError(InputError):
    """A refusal that other ranks may not have heard: nothing can be tried together any more."""


def together(work: Callable[[], Any], told: str = "apply cannot try this module", remedy: str = CHANGE) -> Any:
    """Run `work`; if it fails on one rank, all refuse with the words of the first.

    A rank that fails alone may leave others in a collective of `work`. It waits `PATIENCE` for them and raises; when
    its process ends, gloo frees those that wait, and NCCL leaves them to the launcher, which ends them.

    Raises:
        InputError: on every rank.
    """
    made, refused = None, ""
    try:
        made = work()
    except InputError as error:
        refused = str(error)
    except Exception as error:  # Whatever the module's code raises is the caller's to hear.
        refused = f"{told}: {reason(error)} {remedy}."
    place = dist.PrefixStore(f"nest/{next(_NUMBERS)}", dist.distributed_c10d._get_default_store())
    every: list[Any] = [None] * dist.get_world_size()
    try:
        _followed(place, refused, len(every))
        dist.all_gather_object(every, refused)
    except Exception as error:
        own = refused or f"{told}: {reason(error)} {remedy}."
        raise UnheardError(f"{_first_refusal(place) or own} Other ranks waited for the one that failed.") from None
    first = next((each for each in every if each), None)
    if first is not None:
        raise InputError(first)
    return made


def _followed(place: Any, refused: str, ranks: int) -> None:
    """Note that this rank has ended; if it failed, wait for the others to end.

    Raises:
        TimeoutError: they do not.
    """
    if refused:
        place.compare_set("refused", "", refused)  # Those that are freed later find the words of the first.
    ended, end = place.add("ended", 1), time.monotonic() + PATIENCE
    while refused and ended < ranks:
        if time.monotonic() > end or place.check(["left"]):
            place.set("left", "")
            raise TimeoutError
        time.sleep(0.05)
        ended = place.add("ended", 0)


def _first_refusal(place: Any) -> str:
    """Refusal of the first rank that failed; empty if nobody knows."""
    try:
        return str(place.get("refused").decode()) if place.check(["refused"]) else ""
    except Exception:  # The rank that kept it has left.
        return ""


def reason(error: BaseException) -> str:
    """Describe an error in a sentence; PyTorch's pipelines raise another error from it."""
    while error.__cause__ is not None and not isinstance(error, InputError):
        error = error.__cause__
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    told = text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"
    return f"{told[:400].rstrip('.')}."


def data_rank(meshes: Meshes) -> int:
    """The number of a rank among those that are given different samples."""
    dense = meshes.dense
    return int(dense.get_local_rank("dp_replicate") * dense["dp_shard"].size() + dense.get_local_rank("dp_shard"))


def same_samples(given: Mapping[str, Any], targets: Any, parallel: "Parallel") -> None:
    """Refuse samples of a number or of sizes that differ, and in the first step ranks of one replica that do.

    Raises:
        InputError: on every rank.
    """
    tensors = {"targets": targets, **{n: e for n, e in given.items() if isinstance(e, torch.Tensor)}}
    _same_sizes(tensors, parallel)
    if parallel._agreed:
        return
    sums = {name: float(ordered(each)) for name, each in tensors.items() if each.device.type != "meta"}
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, (parallel.data_rank, sums))
    first: dict[int, Any] = {}
    for rank, (place, found) in enumerate(every):
        other = first.setdefault(place, found)
        name = next((name for name in other if repr(found.get(name)) != repr(other[name])), None)
        if name is not None:
            raise InputError(
                f"rank {rank} was given other {name} than a rank that holds a part of the same replica; draw samples "
                "by `parallel.data_rank`."
            )
    parallel._agreed = True


def _same_sizes(tensors: Mapping[str, Any], parallel: "Parallel") -> None:
    """Refuse what is no whole number of micro-batches, or not of the same sizes on every rank."""
    rows, stages = tensors["targets"].shape[0], parallel.meshes.shape.stages
    short = [n for n, each in tensors.items() if each.dim() and each.shape[0] != rows and stages > 1]
    wrong = rows % parallel.samples > 0 or not 0 < rows <= parallel.batch or bool(short)
    sizes = zlib.crc32(repr([(name, tuple(each.shape)) for name, each in tensors.items()]).encode())
    told = torch.tensor([sizes, -sizes, int(wrong)], device=parallel.meshes.dense.device_type)
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    most, least, refused = told.tolist()
    if refused:
        raise InputError(
            f"{short[0] if short else 'targets'} must have as many rows on each data-parallel rank as whole "
            f"micro-batches have: {parallel.samples} to {parallel.batch} (`parallel.batch`), in steps of "
            f"{parallel.samples}."
        )
    if most != -least:
        raise InputError("ranks were given samples of different sizes; give all as many, padded to one length.")


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
