"""Hosts of several kinds under the same switches: a pool of each kind, and what joins the pools."""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from attrs import evolve

from nest.catalogue import devices, two_vendors
from nest.network.imported import Imported
from nest.spec import BetweenSpec, LinkProfile, PoolSpec
from nest.units import BytesPerSecond, Seconds
from nest_networks.switched.network import devices_per_host, switched_network
from nest_networks.switched.profiles import USUAL, sourced_profile, with_machines
from nest_networks.switched.tiers import Tier, network_tiers
from nest_networks.switched.tree import LocatedHost, tree_of_layers


def pools_of_hosts(
    hosts: Mapping[str, Sequence[LocatedHost]],
    profile: LinkProfile | None = None,
    *,
    usual: str = USUAL,
    assumptions: Sequence[str] = (),
    machines: Mapping[str, Collection[str | None]] | None = None,
) -> Imported:
    """The hosts of each kind as a pool of its own, all under the same switches.

    A pool has levels: groups that differ in size are planned as the largest that all hold. Between two pools is what
    the slower of them has over the uppermost switches, as files of this kind do not say more.

    Args:
        hosts: of each kind, by the name of their device in the catalogue, two kinds or more.
        profile: what a user says of links, for all kinds.
        usual: name of the catalogue's profile for devices that have none.
        assumptions: what was taken for granted so far.
        machines: machine types of the hosts of each kind, which say what links they have.

    Raises:
        InputError: there are no switches that join all hosts, or the profile lacks a bandwidth.
    """
    whole, sentences = tree_of_layers([host for own in hosts.values() for host in own])
    notes, pools, above = [*assumptions, *sentences], list[PoolSpec](), dict[str, Tier]()
    for device, own in hosts.items():
        tree, _ = tree_of_layers(own)
        given = with_machines(profile, (machines or {}).get(device, ()))
        given = given if given is not None and given.device == device else profile
        found = switched_network(tree, given, usual=usual, device=device, levels_only=True)
        assert isinstance(found.network, tuple)
        pools.append(
            PoolSpec(device, found.network, device, hosts=found.hosts, devices_per_host=found.devices_per_host)
        )
        notes += [f"{device}: {each}" for each in found.assumptions]
        chosen = sourced_profile(evolve(given or LinkProfile(), device=device), usual)
        above[device] = network_tiers(whole, devices_per_host(tree, chosen), chosen)[-1]
    between = []
    for pair in combinations(hosts, 2):
        if two_vendors(*(devices()[each] for each in pair)):
            notes.append(
                f"{pair[0]} and {pair[1]} are of two vendors, which share no process group; nest plans them separately."
            )
            continue
        tier = min((above[each] for each in pair), key=lambda tier: tier.level.bandwidth)
        latency = None if tier.latency is None else Seconds(tier.latency)
        between.append(BetweenSpec(pair, BytesPerSecond(tier.bandwidth), latency, tier.link))
        link = f" ({tier.link})" if tier.link else ""
        notes.append(
            f"Between {pair[0]} and {pair[1]} each accelerator has {tier.bandwidth / 1e9:.4g} GB/s in each direction"
            f"{link}: what the slower has over the uppermost switches."
        )
    return Imported((), assumptions=tuple(notes), pools=tuple(pools), between=tuple(between))
