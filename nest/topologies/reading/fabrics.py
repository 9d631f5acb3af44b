"""Hosts on a fabric of switches, as tools that discover networks list them, to a network."""

from collections.abc import Sequence

from attrs import evolve, frozen

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile, TierSpec
from nest.topologies.reading.clos import Fabric, Machine, NoTreeError, folded
from nest.topologies.reading.clos_graph import fabric_graph
from nest.topologies.reading.profiles import completed, nominal_bandwidth
from nest.topologies.reading.switched import switched
from nest.topologies.reading.tiers import inside

WHOLE = (4, 8, 16)
"""Accelerators of hosts as they are sold (trays of NVL72, DGX and HGX systems): so many adapters have one each."""


@frozen
class Figures:
    """What hosts on a fabric have that their file does not say.

    Attributes:
        profile: complete.
        devices: accelerators of a host.
        sentences: where these are from, one each.
    """

    profile: LinkProfile
    devices: int
    sentences: tuple[str, ...] = ()

    @property
    def link_rate(self) -> float:
        """Nominal bytes per second and direction of all links of a host together, as the profile has them."""
        return nominal_bandwidth(self.profile.tiers[0], "tiers[0]") * self.devices


def figures(given: LinkProfile | None, usual: str, links: int, *, made_of: TierSpec | None = None) -> Figures:
    """The figures of hosts with `links` to a fabric.

    Args:
        given: what the user gives; None: nothing.
        usual: name of the catalogue's profile that completes it.
        links: of each host.
        made_of: the links of the network, where the file says and the user does not.
    """
    chosen = completed(given, usual)
    source = f"link profile {chosen.name}" if chosen.name else "the link profile"
    if made_of is not None and (given is None or not given.tiers):
        chosen = evolve(chosen, tiers=(made_of,))
    devices, sentences = chosen.devices_per_host or 1, []
    if given is None or given.devices_per_host is None:
        told = f"A host has {devices} accelerators: {source}."
        if links in WHOLE:
            devices = links
            told = f"A host has {devices} accelerators: one for each of its links to the network."
        sentences.append(told)
    if chosen.device is not None and (given is None or given.device is None):
        sentences.append(f"The accelerators are {chosen.device}: {source}.")
    return Figures(evolve(chosen, devices_per_host=devices), devices, tuple(sentences))


def fabric_network(
    machines: Sequence[Machine], fabric: Fabric, found: Figures, assumptions: Sequence[str] = ()
) -> Imported:
    """The network of `machines`: levels where the fabric is a tree of tiers and regular, otherwise a graph.

    Args:
        machines: all with equally many links.
        fabric: the switches.
        found: what the hosts have that the file does not say.
        assumptions: what the importer itself took for granted.

    Raises:
        InputError: there are no hosts, they cannot reach one another, or an irregular fabric is too large.
    """
    if not machines:
        raise InputError("no host hangs on a switch.")
    sentences = [*assumptions, *found.sentences]
    try:
        tree = folded(machines, fabric, devices=found.devices)
    except NoTreeError as error:
        sentences.append(f"Every link is planned by itself, because {error}")
    else:
        return switched(tree, found.profile, assumptions=sentences)
    inner = inside("host", found.profile.host, "host")  # type: ignore[arg-type]
    network = inside("network", found.profile.tiers[0], "tiers[0]")
    rate = found.link_rate / len(machines[0].links)
    graph = fabric_graph(machines, fabric, inner, network, found.devices, rate)
    return Imported(graph, (), found.profile.device, tuple(sentences), found.devices)
