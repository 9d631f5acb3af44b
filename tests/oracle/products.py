"""Networks that are a Cartesian product of graphs: coordinates of their devices, found by trying.

In a product of connected graphs A and B, the devices that share the B coordinate of device 0 are a copy of A, those
that share its A coordinate a copy of B. The coordinates of any other device are its nearest device in each copy, and
that is the only one nearest. So every product of two factors is found among all pairs of sets that have device 0 in
common and whose sizes multiply to that of the graph. Factors are split again; a connected graph has one way to be a
product of graphs that are no products (Sabidussi 1960, Vizing 1963), so the first way found is the only one.
"""

from itertools import combinations


def coordinates(neighbours: list[set[int]]) -> list[tuple[int, ...]]:
    """The coordinates of every device in as many dimensions as there can be; a single one in what is no product.

    A coordinate is the device on the axis through device 0 that it is level with.
    """
    axes = factors(neighbours, tuple(range(len(neighbours))))
    near = distances(neighbours)
    return [tuple(nearest(near, device, axis) for axis in axes) for device in range(len(neighbours))]


def factors(neighbours: list[set[int]], devices: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The axes through the first of these devices, whose product their graph is."""
    count = len(devices)
    first, *others = devices
    for length in range(2, count // 2 + 1):
        if count % length:
            continue
        for one in combinations(others, length - 1):
            rest = [device for device in others if device not in one]
            for two in combinations(rest, count // length - 1):
                axes = ((first, *one), (first, *two))
                if is_product(neighbours, devices, *axes):
                    return [axis for part in axes for axis in factors(neighbours, part)]
    return [devices]


def is_product(neighbours: list[set[int]], devices, one: tuple[int, ...], two: tuple[int, ...]) -> bool:
    """Whether the graph of these devices is the product of those of two axes."""
    inside = {device: neighbours[device] & set(devices) for device in devices}
    near = {device: hops(inside, device) for device in devices}
    place = {device: (nearest(near, device, one), nearest(near, device, two)) for device in devices}
    if len(set(place.values())) < len(devices):
        return False
    return all(
        (there in inside[here])
        == (
            (place[here][0] == place[there][0] and place[there][1] in inside[place[here][1]])
            or (place[here][1] == place[there][1] and place[there][0] in inside[place[here][0]])
        )
        for here in devices
        for there in devices
    )


def nearest(near, device: int, axis: tuple[int, ...]) -> int:
    """The device of an axis with the fewest hops to this one; of several the lowest."""
    return min(axis, key=lambda other: (near[device][other], other))


def distances(neighbours: list[set[int]]) -> list[dict[int, int]]:
    """Hops between every two devices."""
    graph = dict(enumerate(neighbours))
    return [hops(graph, device) for device in graph]


def hops(neighbours: dict[int, set[int]], source: int) -> dict[int, int]:
    """Hops from one device to every other; a great number where no links lead."""
    found = {source: 0}
    front = [source]
    while front:
        front = sorted({other for device in front for other in neighbours[device]} - set(found))
        found |= dict.fromkeys(front, max(found.values()) + 1)
    return {device: found.get(device, len(neighbours)) for device in neighbours}
