"""Host and accelerator of each rank of a plan, for exporters."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from nest.deployment import MEGATRON_ORDER, Rank, rank_table
from nest.deployment.ranks import Seat, named_seats, numbered, seats
from nest.errors import InputError
from nest.hooks.architectures import cluster_spec, network_of
from nest.hooks.registry import registry
from nest.instance import Cluster
from nest.spec import ClusterSpec, PlanDocument, PoolSpec
from nest.spec.problem import NO_TARGET

if TYPE_CHECKING:
    from nest.instance.pairs import Pairs
    from nest.network import LinkGraph


@frozen
class Placed:
    """A rank in its place: accelerator `gpu` of the host `node`.

    Attributes:
        named: the host has a given name; else the name is a placeholder with its number.
    """

    rank: Rank
    node: str
    gpu: int
    named: bool


def rank_order(plan: PlanDocument) -> tuple[str, ...]:
    """Order in which ranks of `plan` are counted: a mixed radix, fastest first (docs/explanation/ranks.md).

    That of the plan's framework (`search.target`), else of the first exporter with an order. For a plan it cannot run,
    the order of all others. Strategies with a column of their own come after `cp`.
    """
    exporters = registry().exporters()
    target = plan.problem.get("search", {}).get("target", NO_TARGET)
    named = list(exporters.values()) if target == NO_TARGET else [exporters[target]] if target in exporters else []
    exporter = next((each for each in named if hasattr(each, "rank_order")), None)
    try:
        order = MEGATRON_ORDER if exporter is None else tuple(exporter.rank_order(plan))
    except InputError:
        order = MEGATRON_ORDER
    degrees = {} if plan.candidate is None else plan.candidate.degrees
    own = [name for name, each in registry().strategies().items() if getattr(each, "rank_column", False)]
    split = tuple(name for name in own if degrees.get(name, 1) > 1)
    behind = order.index("cp") + 1
    return (*order[:behind], *split, *order[behind:])


def placement(plan: PlanDocument, order: Sequence[str] | None = None) -> tuple[Placed, ...]:
    """Every rank of `plan` with its host and accelerator, by number (docs/explanation/ranks.md).

    Hosts are those of `cluster.hosts`, or those in the devices' names, `HOST.INDEX`; unnamed ones are called `node0`,
    `node1`, ..., in several pools `POOL-node0` and so on.

    Args:
        plan: feasible, with equal candidates on all stages.
        order: coordinates as a mixed radix, fastest first, as for `nest.deployment.rank_table`; None: that of
            `rank_order`.

    Raises:
        InputError: the plan is infeasible, its stages differ in their candidates, or the cluster's hosts do not hold
            its devices.
    """
    ranks = rank_table(plan, rank_order(plan) if order is None else order)
    seats_named = _seats(plan, ranks)
    return tuple(Placed(rank, seat.node, seat.gpu, seat.named) for rank, seat in zip(ranks, seats_named, strict=True))


def _seats(plan: PlanDocument, ranks: Sequence[Rank]) -> list[Seat]:
    spec = cluster_spec(plan)
    if spec.pools is not None:
        of_pools = _seats_of_pools(spec.pools)
        return [of_pools[rank.device] for rank in ranks]
    network = network_of(spec)
    if isinstance(network, (tuple, Cluster)):
        fanouts = [level.fanout for level in (network if isinstance(network, tuple) else network.levels)]
        along = seats(prod(fanouts), spec.hosts or (), spec.devices_per_host, fanouts[0])
        return [along[rank.device] for rank in ranks]
    if plan.placement is not None:
        placed = plan.placement.replicas
        return _by_name([placed[rank.replica][rank.pp][rank.offset] for rank in ranks], network, spec)
    from nest.network import reduce

    names = reduce(network).names
    return _by_name([names[rank.device] for rank in ranks], network, spec)


def _seats_of_pools(pools: Sequence[PoolSpec]) -> list[Seat]:
    """Seat of every device, pool after pool; unnamed hosts are called `POOL-node0`, `POOL-node1`, ..."""
    along: list[Seat] = []
    for pool in pools:
        fanouts = [level.fanout for level in pool.levels]
        own = seats(prod(fanouts), pool.hosts or (), pool.devices_per_host, fanouts[0])
        along += [seat if seat.named else evolve(seat, node=f"{pool.name}-{seat.node}") for seat in own]
    return along


def _by_name(names: Sequence[str], network: LinkGraph | Pairs, spec: ClusterSpec) -> list[Seat]:
    """Seats of devices by their names in a network; without hosts in the names, by their places along its levels.

    Hosts of a generated network are numbered: hosts in the problem win over these.
    """
    given = spec.hosts is not None or spec.devices_per_host is not None
    named = named_seats(names)
    if named is not None and not (given and numbered(names)):
        return list(named)
    from nest.network import reduce

    levels = reduce(network)
    along = seats(len(levels.names), spec.hosts or (), spec.devices_per_host, levels.best.levels[0].fanout)
    by_name = dict(zip(levels.names, along, strict=True))
    return [by_name[name] for name in names]
