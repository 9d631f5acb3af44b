"""Fabrics that are no tree, link by link."""

from collections.abc import Sequence

from nest.network.builder import NetworkBuilder
from nest.network.graph import LinkGraph, check_size
from nest.topologies.reading.clos import Fabric, Machine
from nest.topologies.reading.tiers import Tier


def fabric_graph(
    machines: Sequence[Machine], fabric: Fabric, inner: Tier, network: Tier, devices: int, usual_rate: float
) -> LinkGraph:
    """The accelerators of `machines` with all links, those between switches shared by all that send over them.

    Accelerators take the links of their host in turn, as many for each as there are; where there are fewer links than
    accelerators they share them.

    Args:
        machines: the hosts, all with a link to some switch.
        fabric: the switches, with the links between them.
        inner: the links inside a host.
        network: what one link of the network is made of: its share of the nominal bandwidth is reached.
        devices: accelerators of each host.
        usual_rate: nominal bytes per second and direction of a link whose rate is not known.

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
