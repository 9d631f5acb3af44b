"""Fabrics as they are cabled: hosts, switches, and all links between them, one by one."""

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from nest.network.graph import LinkGraph, NetworkBuilder, check_size
from nest_networks.switched.tiers import Tier


@frozen
class FabricHost:
    """A host with its links.

    Attributes:
        name: as jobs are started on it.
        links: the switch at the other end of each, in the order of its NICs, and bytes per second and direction;
            None: not known.
        domain: the NVLink domain it is in, together with others; None: none.
    """

    name: str
    links: tuple[tuple[str, float | None], ...]
    domain: str | None = None

    @property
    def switches(self) -> dict[str, float | None]:
        """The switches it hangs on, with the bandwidth of all links to each together."""
        bandwidths: dict[str, float | None] = {}
        for switch, bandwidth in self.links:
            before = bandwidths.get(switch, 0.0)
            bandwidths[switch] = None if before is None or bandwidth is None else before + bandwidth
        return bandwidths


class Fabric:
    """Switches with the links between them."""

    def __init__(self) -> None:
        self._links: dict[str, dict[str, float | None]] = {}

    def link(self, one: str, two: str, bandwidth: float | None) -> None:
        """Add a link between two switches: bytes per second and direction; None: not known.

        A cable from a switch back to itself leads nowhere.
        """
        if one == two:
            return
        for near, far in ((one, two), (two, one)):
            known = self._links.setdefault(near, {})
            before = known.get(far, 0.0)
            known[far] = None if before is None or bandwidth is None else before + bandwidth

    def beside(self, switch: str) -> Mapping[str, float | None]:
        """The switches linked to one, with the bandwidth of all links together."""
        return self._links.get(switch, {})


def total(links: Iterable[float | None]) -> float | None:
    """The bandwidth of all together; None: not known."""
    known = list(links)
    return None if None in known else sum(each for each in known if each is not None)


def fabric_graph(
    machines: Sequence[FabricHost], fabric: Fabric, inner: Tier, network: Tier, devices: int, usual_rate: float
) -> LinkGraph:
    """The accelerators of `machines` with all links, those between switches shared by all that send over them.

    Accelerators take the links of their host in turn, as many for each as there are; where there are fewer links than
    accelerators they share them.

    `network`: what one link of the network is made of: its share of the nominal bandwidth is reached.
    `usual_rate`: nominal bytes per second and direction of a link whose rate is not known.

    Raises:
        InputError: it has too many devices or switches, or not all are connected.
    """
    check_size(devices * len(machines), 0, 0)
    level, inside = network.level, inner.level
    reached = level.bandwidth / network.bandwidth
    built = NetworkBuilder()
    switches: dict[str, int] = {}
    for machine in machines:
        accelerators = [built.device(f"{machine.name}.{index}") for index in range(devices)]
        for index, (one, share) in _taken(accelerators, len(machine.links)):
            switch, rate = machine.links[index]
            if switch not in switches:
                switches[switch] = built.switch(f"switch {switch}")
            built.link(one, switches[switch], reached * share * (rate or usual_rate), level.latency / 2)
        if devices > 1:
            middle = built.switch(f"inside {machine.name}")
            for one in accelerators:
                built.link(one, middle, inside.bandwidth, inside.latency / 2)
    waiting, seen = list(switches), set(switches)
    for switch in waiting:
        for other, rate in fabric.beside(switch).items():
            if other not in seen:
                seen.add(other)
                waiting.append(other)
                switches[other] = built.switch(f"switch {other}")
            if switch < other:
                built.link(switches[switch], switches[other], reached * (rate or usual_rate), 0.0)
    return built.built()


def _taken(accelerators: Sequence[int], links: int) -> list[tuple[int, tuple[int, float]]]:
    """For links of a host the accelerator that takes it, and its share."""
    count = len(accelerators)
    if links >= count:
        return [(index, (accelerators[index * count // links], 1.0)) for index in range(links)]
    taken = [index * links // count for index in range(count)]
    return [(index, (one, 1 / taken.count(index))) for index, one in zip(taken, accelerators, strict=True)]
