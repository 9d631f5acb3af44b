"""Devices and machines of a framework's ranks."""

import re
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from attrs import frozen

from nest.deployment.deployment import Deployment, deployment
from nest.errors import InputError
from nest.spec import PlanDocument

MEGATRON_ORDER = ("tp", "cp", "dp", "pp")
"""Megatron-LM's default order of ranks, fastest first: `tp-cp-ep-dp-pp` (megatron/core/parallel_state.py)."""


@frozen
class Rank:
    """One process of a training.

    Attributes:
        rank: its number.
        device: number of its device along the levels of the cluster, of pools in the order of the problem.
        pp: its pipeline stage.
        dp: place among the data-parallel ranks.
        cp: place in its context-parallel group.
        tp: place in its tensor-parallel group.
        ep: place in its expert-parallel group.
        etp: place in its expert-tensor-parallel group.
        replica: its data-parallel replica.
        offset: place in the device group of its stage.
        places: by other strategy in `order` of `rank_table`, its place among their ranks.
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
    places: tuple[tuple[str, int], ...] = ()


def rank_table(plan: PlanDocument, order: Sequence[str] = MEGATRON_ORDER) -> tuple[Rank, ...]:
    """Every rank, by its number.

    A block orders its devices by `tp` (fastest), `cp`, then copies of the attention part; the experts' ranks use the
    same devices by `etp` (fastest), then `ep` (nest.graph.Block). Strategies of plug-ins come last: their ranks are
    furthest apart. Blocks are placed by PROBLEM.md section 3.

    Args:
        plan: feasible, with equal candidates on all stages.
        order: coordinates as a mixed radix, fastest first: a permutation of `tp`, `cp`, `dp`, `pp`, and of strategies
            whose ranks are an axis of their own (`Strategy.rank_column`).

    Raises:
        InputError: the plan is infeasible; its stages differ in their candidates, which no framework's ranks do; or its
            blocks have ranks beyond these coordinates.
    """
    shape = deployment(plan)
    sizes = grid(shape, order)
    firsts = [list(first_devices(plan, shape, stage)) for stage in range(shape.stages)]
    own = [name for name in shape.degrees if name in order and name not in MEGATRON_ORDER]
    copies = sizes["dp"] // shape.replicas
    rows = []
    for rank, place in enumerate(product(*(range(sizes[name]) for name in reversed(order)))):
        at = dict(zip(reversed(order), place, strict=True))
        replica, outer = divmod(at["dp"], copies)
        stride = copies
        for name in own:
            outer += stride * at[name]
            stride *= sizes[name]
        offset = at["tp"] + shape.tp * (at["cp"] + shape.cp * outer)
        rows.append(
            Rank(
                rank=rank,
                device=firsts[at["pp"]][replica] + offset,
                ep=offset // shape.etp % shape.ep,
                etp=offset % shape.etp,
                replica=replica,
                offset=offset,
                places=tuple((name, at[name]) for name in own),
                **{name: at[name] for name in MEGATRON_ORDER},
            )
        )
    return tuple(rows)


def grid(shape: Deployment, order: Sequence[str] = MEGATRON_ORDER) -> dict[str, int]:
    """Places along each coordinate of `order`.

    Raises:
        InputError: they do not identify every device of a device group.
    """
    if shape.mixed:
        raise InputError("no rank table: the plan's stages use different parallelism.")
    strange = [f"{name} {degree}" for name, degree in shape.others.items() if name not in order]
    if strange:
        raise InputError(f"no rank table: it has no column for {', '.join(strange)}.")
    own = {name: shape.degree(name) for name in order if name not in MEGATRON_ORDER}
    if shape.width % (shape.tp * shape.cp * prod(own.values())) or shape.width % (shape.ep * shape.etp):
        raise InputError(
            f"no rank table: stages of {shape.width} devices are neither tp {shape.tp} x cp {shape.cp} nor etp "
            f"{shape.etp} x ep {shape.ep} ranks."
        )
    data_parallel = shape.data_parallel // prod(own.values())
    return {"pp": shape.stages, "dp": data_parallel, "cp": shape.cp, "tp": shape.tp, **own}


def first_devices(plan: PlanDocument, shape: Deployment, stage: int) -> Iterator[int]:
    """First device of the stage's block in each replica (PROBLEM.md section 3), after those of earlier pools."""
    first, width = plan.stages[stage].devices
    before, devices = _pool_devices(plan, plan.stages[stage].pool)
    whole = shape.width * (devices // (shape.replicas * shape.width))
    for replica in range(shape.replicas):
        yield before + first + replica * (whole if shape.rank_order == "pp-inner" else width)


def _pool_devices(plan: PlanDocument, name: str | None) -> tuple[int, int]:
    """Devices of the pools before one, and its own; without pools, 0 and all (`P`)."""
    if name is None:
        return 0, _cluster_devices(plan)
    before = 0
    for pool in plan.problem["cluster"]["pools"]:
        own = prod(level["fanout"] for level in pool["levels"])
        if pool["name"] == name:
            return before, own
        before += own
    raise InputError(f"the plan places a stage in pool {name!r}, which its problem does not have.")


def _cluster_devices(plan: PlanDocument) -> int:
    """Devices of the plan's cluster (`P`).

    Raises:
        InputError: unknown.
    """
    levels = plan.problem.get("cluster", {}).get("levels")
    count = plan.summary.get("devices", prod(level["fanout"] for level in levels) if levels else None)
    if not isinstance(count, int):
        raise InputError("the plan file has no `summary.devices`; solve again to get one.")
    return count


_NAMED = re.compile(r"(.+)\.(\d{1,9})", re.DOTALL)
"""`HOST.INDEX`: names that importers give devices of a network by links (nest.network.imported)."""

_NUMBERED = re.compile(r"\d+(\.\d+)*")
"""Hosts of generated networks, which have numbers instead of names (docs/reference/topologies.md)."""


@frozen
class Seat:
    """A device in its machine.

    Attributes:
        node: name of the host.
        gpu: index of the accelerator on it, in the driver's numbering.
        named: the host has a given name; else a placeholder with its number.
    """

    node: str
    gpu: int
    named: bool = True


def seats(devices: int, hosts: Sequence[str] = (), per_host: int | None = None, leaf: int = 1) -> tuple[Seat, ...]:
    """Seat of every device along the levels of a cluster: hosts one after the other, with equally many devices.

    Args:
        devices: number of them.
        hosts: names of the machines; empty: `node0`, `node1`, ...
        per_host: accelerators of one machine; None: the devices divided among `hosts`, or `leaf` without hosts.
        leaf: devices of an innermost group.

    Raises:
        InputError: the machines do not hold these devices.
    """
    each = per_host or (devices // len(hosts) if hosts else leaf) or 1
    if devices % each or (hosts and each * len(hosts) != devices):
        machines = f"{len(hosts)} hosts of {each}" if hosts else f"hosts of {each} accelerators"
        raise InputError(
            f"cluster.hosts: {machines} do not make the {devices} devices of the cluster; change hosts or "
            "devices_per_host."
        )
    names = hosts or [f"node{index}" for index in range(devices // each)]
    return tuple(Seat(names[device // each], device % each, bool(hosts)) for device in range(devices))


def named_seats(names: Sequence[str]) -> tuple[Seat, ...] | None:
    """Seats of devices called `HOST.INDEX`; None: not all are.

    Hosts with only numbers, as in generated networks, are called `node` and their number.
    """
    pattern_match = [_NAMED.fullmatch(name) for name in names]
    if not all(pattern_match):
        return None
    given = not numbered(names)
    return tuple(Seat(_host(match[1]), int(match[2]), given) for match in pattern_match if match)


def numbered(names: Sequence[str]) -> bool:
    """True if these devices have numbers for hosts, as in generated networks."""
    return all(_NUMBERED.fullmatch(name) for name in names)


def _host(name: str) -> str:
    return f"node{name.replace('.', '-')}" if _NUMBERED.fullmatch(name) else name
