"""Hosts at the points of a grid whose rows close to rings, as a graph of links."""

from collections.abc import Mapping, Sequence

from nest.errors import InputError
from nest.network.builder import NetworkBuilder
from nest.network.graph import check_size
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest.topologies.reading.profiles import sourced, taken
from nest.topologies.reading.tiers import inside, told

Point = tuple[int, ...]


def host_grid(
    shape: Sequence[int], hosts: Mapping[Point, str], profile: LinkProfile | None, assumptions: Sequence[str] = ()
) -> Imported:
    """Hosts joined to the next ones along every dimension, the last to the first.

    Each accelerator has a link to the one of its number in each neighbour, with what the profile's first tier offers an
    accelerator; between accelerators that are farther apart the link is the narrowest of the way.

    Args:
        shape: points along each dimension.
        hosts: name of the host at each point that has one.
        profile: what the user gives for what the file leaves out; None: nothing.
        assumptions: what was taken for granted so far.

    Raises:
        InputError: there are too many accelerators, or hosts that others cannot reach.
    """
    chosen = sourced(profile)
    devices = chosen.devices_per_host
    inner = inside("host", chosen.host, "host", chosen.source("host"))
    outer = inside("neighbour", chosen.tiers[0], "tiers[0]", chosen.source("tiers"))
    sentences = [*assumptions, *taken(chosen), *told([*[inner] * (devices > 1), outer])]
    check_size(devices * len(hosts), (devices + 1) * len(hosts), devices * len(hosts) * (len(shape) + 1))
    network = NetworkBuilder()
    names: set[str] = set()
    numbers: dict[Point, list[int]] = {}
    for point, name in hosts.items():
        if name in names:
            raise InputError(f"host {name!r:.60} is at two places; give each host one.")
        names.add(name)
        numbers[point] = [network.device(f"{name}.{index}") for index in range(devices)]
        if devices > 1:
            middle = network.switch(f"inside {name}")
            for each in numbers[point]:
                network.link(each, middle, inner.level.bandwidth, inner.level.latency / 2)
    for point, own in numbers.items():
        for dimension, length in enumerate(shape):
            place = (point[dimension] + 1) % length
            following = (*point[:dimension], place, *point[dimension + 1 :])
            if following in numbers and (place > point[dimension] or length > 2):
                for one, two in zip(own, numbers[following], strict=True):
                    network.link(one, two, outer.level.bandwidth, outer.level.latency)
    return Imported(network.built(), (), chosen.device, tuple(sentences), devices)
