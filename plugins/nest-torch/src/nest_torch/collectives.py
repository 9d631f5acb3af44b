"""Collectives among processes of `torch.distributed`: gloo between processors, NCCL between GPUs."""

import datetime
import json
import os
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from math import ceil
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
import torch.distributed as distributed
from attrs import frozen
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from nest.errors import InputError
from nest.spec.measurements import COLLECTIVE_KINDS, CollectiveMeasurement
from nest.units import Bytes, Seconds
from nest_torch.machine import FORMATS, Machine, machine, versions
from nest_torch.timing import FEWEST_REPEATS, LEAST_REPEAT, Timing

MOST_CALLS = 200
"""Calls in one repeat, at most."""

SMALLEST, LARGEST_GPU, LARGEST_HOST, STEP = 2**10, 2**30, 2**26, 4
"""Bytes of the buffers, and the factor from one to the next."""

LAYOUTS = {
    "all_reduce": (Partial(), Replicate()),
    "all_gather": (Shard(0), Replicate()),
    "reduce_scatter": (Partial(), Shard(0)),
}
"""Layouts before and after collectives that DTensor issues."""

PATIENCE = 60.0
"""Seconds that processes wait for one another, beyond the time they measure."""


@frozen
class Group:
    """Facts that every process of a measurement knows.

    Attributes:
        processes: how many there are.
        device: what `--device` said.
        precision: number format of the elements.
        link: name of the link between them; empty: it is not said.
        repeats: how often to time each collective.
        seconds: for all of them together.
        nodes: machines the processes are spread over.
        placed: members of each group in which DTensor issues the collectives, all groups at once; 0: all processes
            call PyTorch's collectives.
    """

    processes: int
    device: str
    precision: str
    link: str
    repeats: int
    seconds: float
    nodes: int = 1
    placed: int = 0

    @property
    def members(self) -> int:
        """Processes that take part in a collective."""
        return self.placed or self.processes

    @property
    def machines(self) -> int:
        """Machines that one collective spans; groups of placed tensors are ranks in a row."""
        return max(1, self.members * self.nodes // self.processes)


def launched() -> tuple[int, int, int] | None:
    """Rank, processes and machines, where a launcher such as torchrun started this process; None: it did not."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    if not all(os.environ.get(name, "").isdecimal() for name in names):
        return None
    rank, processes, local = (int(os.environ[name]) for name in names)
    return rank, processes, max(1, processes // max(1, local))


def among_own_processes(group: Group) -> tuple[list[CollectiveMeasurement], list[str]]:
    """Start the processes of `group` on this machine; the measurements, and what could not be measured.

    Raises:
        InputError: a process failed, or there are fewer GPUs than processes.
    """
    import multiprocessing

    if group.device.startswith("cuda") and group.processes > torch.cuda.device_count():
        raise InputError(
            f"--processes {group.processes}: there are {torch.cuda.device_count()} GPUs, and each process takes one."
        )
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory(prefix="nest-") as folder:
        results = context.Queue()
        meeting = (Path(folder) / "meeting").as_uri()
        children = [
            context.Process(target=_child, args=(rank, group, meeting, results), daemon=True)
            for rank in range(group.processes)
        ]
        for child in children:
            child.start()
        try:
            rows, skipped = _awaited(results, children, group.seconds + 2 * PATIENCE)
        finally:
            for child in children:
                child.join(5)
                if child.is_alive():
                    child.terminate()
    from nest.io import structure

    return [structure(row, CollectiveMeasurement) for row in rows], skipped


def _awaited(results: Any, children: Sequence[Any], seconds: float) -> tuple[list[dict[str, Any]], list[str]]:
    """Wait for the first process's message, or for an error of one of them."""
    deadline = perf_counter() + seconds
    while perf_counter() < deadline:
        try:
            rows, skipped, error = results.get(timeout=0.2)
        except queue.Empty:
            if any(child.exitcode not in (None, 0) for child in children):
                raise InputError("--processes: a process ended before it had measured anything.") from None
            continue
        if error:
            raise InputError(f"--processes: the collectives failed: {error}.")
        return rows, skipped
    raise InputError("--processes: the processes did not find one another in time.")


def _child(rank: int, group: Group, meeting: str, results: Any) -> None:
    """One process: joins the others, measures; the first sends what was found."""
    try:
        found, skipped = measured(rank, group, meeting)
    except Exception as error:  # Whatever goes wrong in a process must reach the one that waits for it.
        results.put(([], [], " ".join(str(error).split())[:200] or type(error).__name__))
        return
    if rank == 0:
        from nest.io import unstructure

        results.put((json.loads(json.dumps([unstructure(each) for each in found])), skipped, ""))


def measured(rank: int, group: Group, meeting: str) -> tuple[list[CollectiveMeasurement], list[str]]:
    """Join a group and measure every collective at every size, smallest first.

    Args:
        rank: of this process.
        group: as all processes were told.
        meeting: where they meet: a URL as `torch.distributed.init_process_group` takes it.
    """
    cuda = group.device.startswith("cuda")
    local = int(os.environ.get("LOCAL_RANK", rank))
    here = machine(f"cuda:{local}" if cuda else "cpu")
    if not cuda:
        torch.set_num_threads(1)
    distributed.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=meeting,
        rank=rank,
        world_size=group.processes,
        timeout=datetime.timedelta(seconds=group.seconds + PATIENCE),
    )
    try:
        return _all(group, here)
    finally:
        distributed.destroy_process_group()


def _all(group: Group, here: Machine) -> tuple[list[CollectiveMeasurement], list[str]]:
    found: list[CollectiveMeasurement] = []
    skipped: list[str] = []
    begin = perf_counter()
    for size, kind in _sizes(here, group.placed):
        if kind in {each.partition(" ")[0] for each in skipped}:
            continue
        if _agreed(group.seconds - (perf_counter() - begin) <= 0, here):
            skipped.append(f"buffers of {size} bytes and more: the time was up; --seconds gives more")
            break
        try:
            call, counted = (_redistribution(kind) if group.placed else _CALLS[kind])(size, group, here)
            call()
        except (RuntimeError, NotImplementedError, ValueError) as error:
            skipped.append(f"{kind} {size} bytes: {' '.join(str(error).split())[:160]}")
            continue
        timing = _timed(call, group, here)
        found.append(_measurement(kind, counted, timing, group, here))
    return found, skipped


def _sizes(here: Machine, placed: int) -> Iterator[tuple[int, str]]:
    size = SMALLEST
    while size <= (LARGEST_GPU if here.cuda else LARGEST_HOST):
        for kind in LAYOUTS if placed else COLLECTIVE_KINDS:
            yield size, kind
        size *= STEP


def _agreed(own: bool, here: Machine) -> bool:
    """Return whether any process says so: all must leave off together."""
    said = torch.tensor([float(own)], device=here.device)
    distributed.all_reduce(said, distributed.ReduceOp.MAX)
    return bool(said.item() > 0)


def _slowest(seconds: float, here: Machine) -> float:
    said = torch.tensor([seconds], device=here.device, dtype=torch.float64)
    distributed.all_reduce(said, distributed.ReduceOp.MAX)
    return float(said.item())


def _timed(call: Callable[[], Any], group: Group, here: Machine) -> Timing:
    """Calls in a row between barriers, as nccl-tests times them; the slowest process counts."""

    def repeat(calls: int) -> float:
        if here.cuda:
            torch.cuda.synchronize(here.device)
        distributed.barrier()
        start = perf_counter()
        for _ in range(calls):
            call()
        if here.cuda:
            torch.cuda.synchronize(here.device)
        return _slowest((perf_counter() - start) / calls, here)

    once = median(repeat(1) for _ in range(FEWEST_REPEATS))
    calls = max(1, min(MOST_CALLS, ceil(LEAST_REPEAT / max(once, LEAST_REPEAT / MOST_CALLS))))
    return Timing.of([repeat(calls) for _ in range(max(group.repeats, FEWEST_REPEATS))])


Call = tuple[Callable[[], Any], int]
"""A collective to call, and the bytes it is counted as (PROBLEM.md section 1)."""


def _buffer(size: int, group: Group, here: Machine, parts: int) -> tuple[Any, int]:
    """At least a number for each of `parts` equal parts, of `size` bytes together as nearly as can be."""
    dtype = getattr(torch, FORMATS[group.precision])
    numbers = max(1, size // (int(dtype.itemsize) * parts)) * parts
    return torch.zeros(numbers, device=here.device, dtype=dtype), numbers * int(dtype.itemsize)


def _named(name: str, before: str) -> Callable[..., Any]:
    """A function of `torch.distributed`, by the name it has or by the one older releases have."""
    found: Callable[..., Any] = getattr(distributed, name, None) or getattr(distributed, before)
    return found


def _all_reduce(size: int, group: Group, here: Machine) -> Call:
    whole, counted = _buffer(size, group, here, 1)
    return (lambda: distributed.all_reduce(whole)), counted


def _all_gather(size: int, group: Group, here: Machine) -> Call:
    whole, counted = _buffer(size, group, here, group.processes)
    part = torch.zeros_like(whole[: whole.numel() // group.processes])
    gather = _named("all_gather_single", "all_gather_into_tensor")
    return (lambda: gather(whole, part)), counted


def _reduce_scatter(size: int, group: Group, here: Machine) -> Call:
    whole, counted = _buffer(size, group, here, group.processes)
    part = torch.zeros_like(whole[: whole.numel() // group.processes])
    scatter = _named("reduce_scatter_single", "reduce_scatter_tensor")
    return (lambda: scatter(part, whole)), counted


def _all_to_all(size: int, group: Group, here: Machine) -> Call:
    whole, counted = _buffer(size, group, here, group.processes)
    target = torch.empty_like(whole)
    return (lambda: distributed.all_to_all_single(target, whole)), counted


def _point_to_point(size: int, group: Group, here: Machine) -> Call:
    """From the first process to the last; those between have nothing to do."""
    whole, counted = _buffer(size, group, here, 1)
    rank, last = distributed.get_rank(), group.processes - 1

    def call() -> None:
        if rank == 0:
            distributed.send(whole, last)
        elif rank == last:
            distributed.recv(whole, 0)

    return call, counted


_CALLS: Mapping[str, Callable[[int, Group, Machine], Call]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "point_to_point": _point_to_point,
}


@cache
def _mesh(device: str, groups: int, members: int) -> DeviceMesh:
    """The ranks of each group; made once, for its process groups last as long as the process."""
    return init_device_mesh(device, (groups, members), mesh_dim_names=("groups", "members"))["members"]


def _redistribution(kind: str) -> Callable[[int, Group, Machine], Call]:
    """A change of layout that is this collective, of a local tensor that a gradient flows back to."""

    def make(size: int, group: Group, here: Machine) -> Call:
        before, after = LAYOUTS[kind]
        mesh = _mesh(here.device.type, group.processes // group.members, group.members)
        whole, counted = _buffer(size, group, here, group.members)
        numbers = whole.numel() // (group.members if isinstance(before, Shard) else 1)
        local = whole[:numbers].clone().requires_grad_()

        def call() -> None:
            laid = DTensor.from_local(local, mesh, [before], run_check=False)
            laid.redistribute(mesh, [after]).to_local()

        return call, counted

    return make


def _measurement(kind: str, counted: int, timing: Timing, group: Group, here: Machine) -> CollectiveMeasurement:
    pair = kind == "point_to_point"
    software = versions(cuda=here.cuda)
    if here.cuda:
        software["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return CollectiveMeasurement(
        nest=1,
        measurement="collective",
        kind=kind,
        bytes=Bytes(counted),
        members=2 if pair else group.members,
        seconds=Seconds(timing.seconds),
        nodes=min(2, group.nodes) if pair else group.machines,
        precision=group.precision,
        link=group.link or None,
        spread=timing.spread,
        repeats=timing.repeats,
        device=f"{here.name}, placed tensors" if group.placed else here.name,
        date=datetime.datetime.now().date().isoformat(),
        versions=software,
    )
