"""Devices on a grid of any number of dimensions: meshes and tori."""

from collections.abc import Sequence
from itertools import product
from math import prod

from nest.network.graph import LinkGraph, check_size, link_graph


def grid(shape: Sequence[int], wrap: Sequence[bool], bandwidth: float, latency: float) -> LinkGraph:
    """Devices at the points of a grid, named by their coordinates (`0,3,1`), numbered with the last varying fastest.

    Args:
        shape: devices along each dimension.
        wrap: for each dimension, whether its rows close to rings; two devices in a row have one link either way.
        bandwidth: of one link, bytes per second and direction.
        latency: of one link, seconds.

    Raises:
        InputError: there are too many devices, or fewer than two.
    """
    count = prod(shape)
    check_size(count, count, count * len(shape))
    strides = [prod(shape[dimension + 1 :]) for dimension in range(len(shape))]
    points = list(product(*(range(length) for length in shape)))
    links = []
    for index, point in enumerate(points):
        for length, stride, closed, place in zip(shape, strides, wrap, point, strict=True):
            if place + 1 < length:
                links.append((index, index + stride, bandwidth, latency))
            elif closed and length > 2:
                links.append((index, index - place * stride, bandwidth, latency))
    return link_graph([",".join(map(str, point)) for point in points], [True] * count, links)
