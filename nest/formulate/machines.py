"""Clusters of machines of which one is known inside."""

from attrs import evolve

from nest.catalogue import link
from nest.errors import InputError
from nest.instance import Cluster
from nest.network import LinkGraph, pairs, reduce
from nest.network.imported import Imported
from nest.spec import LevelSpec, TierSpec
from nest.units import BytesPerSecond, Seconds

FABRIC = "fabric"
"""Name of the level between machines."""


def cluster_of(machine: Imported, hosts: int, tier: TierSpec | None = None) -> Imported:
    """The cluster of `hosts` machines like `machine`, which a network that blocks nothing joins.

    Its outermost level is what the network adapters of a machine give each device.

    Args:
        machine: one machine, or several that share a fabric.
        hosts: how many there are of it; 1 is the machine itself.
        tier: the level between machines where the machine's file does not say how fast its adapters are; None: nobody
            says.

    Raises:
        InputError: nobody says how fast the adapters are, there are no hosts, or the file has a network of its own.
    """
    if hosts < 1:
        raise InputError(f"there must be at least one host, not {hosts}.")
    if hosts == 1:
        return machine
    if machine.hosts or machine.devices_per_host is None:
        raise InputError(f"the file does not describe one machine, of which there could be {hosts}.")
    levels, told = _levels(machine)
    between = machine.nics or tier
    if between is None:
        raise InputError(
            "the file does not say how fast the network adapters are; name a link profile, whose first tier says."
        )
    bandwidth = _bandwidth(between)
    told.append(
        f"{hosts} such machines are joined by a network that blocks nothing, at {bandwidth / 1e9:g} GB/s per device "
        f"and direction, {'the sum of its adapters' if machine.nics else 'as the link profile has it'}."
    )
    return evolve(
        machine,
        network=(*levels, LevelSpec(hosts, BytesPerSecond(bandwidth), between.latency, FABRIC, between.link)),
        hosts=(),
        assumptions=(*machine.assumptions, *told),
        adapters=None,
    )


def _bandwidth(tier: TierSpec) -> float:
    """Nominal bytes per second, per device and direction."""
    nominal = tier.bandwidth
    if nominal is None and tier.link is not None:
        nominal = BytesPerSecond(link(tier.link, "tiers[0].link").bandwidth or 0.0)
    if not nominal:
        raise InputError("tiers[0].bandwidth is missing in the link profile; give it in bytes per second.")
    return nominal / tier.oversubscription


def _levels(machine: Imported) -> tuple[tuple[LevelSpec, ...], list[str]]:
    """The levels of one machine, and what was assumed to have them."""
    network = machine.network
    if isinstance(network, tuple):
        return network, []
    told = []
    if isinstance(network, Cluster):
        found = network.levels
    else:
        reduced = reduce(pairs(network) if isinstance(network, LinkGraph) else network)
        found = reduced.best.levels
        if reduced.names != reduced.pairs.names:
            told.append(f"along the levels the devices of a machine are {', '.join(reduced.names)}.")
        if not reduced.best.exact:
            told.append(
                f"levels are on average {reduced.best.stretch.mean:.2f} times as slow as the pairs of a machine."
            )
    written = (
        LevelSpec(level.fanout, BytesPerSecond(level.bandwidth), Seconds(level.latency), level.name) for level in found
    )
    return tuple(written), told
