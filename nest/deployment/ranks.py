"""Which rank of a framework is which device of the cluster."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from attrs import frozen

from nest.deployment.deployment import Deployment, deployment
from nest.errors import InputError
from nest.spec import PlanDocument

MEGATRON_ORDER = ("tp", "cp", "dp", "pp")
"""Megatron-LM's default order of ranks, the fastest first: `tp-cp-ep-dp-pp` (megatron/core/parallel_state.py)."""


@frozen
class Rank:
    """One process of a training.

    Attributes:
        rank: its number.
        device: number of its device along the levels of the cluster.
        pp: its pipeline stage.
        dp: its place among the data-parallel ranks.
        cp: its place in its context-parallel group.
        tp: its place in its tensor-parallel group.
        ep: its place in its expert-parallel group.
        etp: its place in its expert-tensor-parallel group.
        replica: the replica it belongs to.
        offset: its place in the block of its stage.
    """

    rank: int
    device: int
    pp: int
    dp: int
    cp: int
    tp: int
    ep: int
    etp: int
    replica: int
    offset: int


def rank_table(plan: PlanDocument, order: Sequence[str] = MEGATRON_ORDER) -> tuple[Rank, ...]:
    """Every rank, by its number.

    A block holds its devices as `tp` fastest, then `cp`, then copies of the attention part; the experts' ranks lie over
    the same devices as `etp` fastest, then `ep` (nest.graph.Block). Blocks lie as PROBLEM.md section 3 says.

    Args:
        plan: feasible, its stages alike in their candidates.
        order: the coordinates as a mixed radix, the fastest first: a permutation of `tp`, `cp`, `dp`, `pp`.

    Raises:
        InputError: the plan is infeasible; its stages differ in their candidates, which no framework's ranks do; or its
            blocks have ranks that are none of these coordinates.
    """
    shape = deployment(plan)
    _check_grid(shape)
    sizes = {"tp": shape.tp, "cp": shape.cp, "dp": shape.data_parallel, "pp": shape.stages}
    counts = [sizes[name] for name in reversed(order)]
    firsts = [list(first_devices(plan, shape, stage)) for stage in range(shape.stages)]
    found = []
    for rank, place in enumerate(product(*(range(count) for count in counts))):
        at = dict(zip(reversed(order), place, strict=True))
        replica, copy = divmod(at["dp"], shape.copies)
        offset = at["tp"] + shape.tp * (at["cp"] + shape.cp * copy)
        found.append(
            Rank(
                rank=rank,
                device=firsts[at["pp"]][replica] + offset,
                ep=offset // shape.etp % shape.ep,
                etp=offset % shape.etp,
                replica=replica,
                offset=offset,
                **at,
            )
        )
    return tuple(found)


def _check_grid(shape: Deployment) -> None:
    """Make sure that the coordinates say of every device of a block which it is."""
    if shape.mixed:
        raise InputError("the stages of the plan differ in their candidates, so that its ranks have no common grid.")
    if shape.others:
        told = ", ".join(f"{name} {degree}" for name, degree in shape.others.items())
        raise InputError(f"the plan's blocks are split by {told}, for which there is no column in a table of ranks.")
    if shape.width % (shape.tp * shape.cp) or shape.width % (shape.ep * shape.etp):
        raise InputError(
            f"a block of {shape.width} devices has no grid of tp {shape.tp} x cp {shape.cp} and of etp {shape.etp} x "
            f"ep {shape.ep} ranks, so that there is no table of ranks."
        )


def first_devices(plan: PlanDocument, shape: Deployment, stage: int) -> Iterator[int]:
    """First device of the stage's block in each replica (PROBLEM.md section 3)."""
    first, width = plan.stages[stage].devices
    whole = shape.width * (_cluster_devices(plan) // (shape.replicas * shape.width))
    for replica in range(shape.replicas):
        yield first + replica * (whole if shape.rank_order == "pp-inner" else width)


def _cluster_devices(plan: PlanDocument) -> int:
    """Devices of the plan's cluster (`P`).

    Raises:
        InputError: the plan does not say.
    """
    levels = plan.problem.get("cluster", {}).get("levels")
    told = plan.summary.get("devices", prod(level["fanout"] for level in levels) if levels else None)
    if not isinstance(told, int):
        raise InputError("summary.devices is missing, so that nobody can tell where the plan's replicas begin.")
    return told
