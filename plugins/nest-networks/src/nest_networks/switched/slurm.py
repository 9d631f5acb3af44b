"""Clusters of Slurm's topology plug-ins, in every form of file.

Of every network: `part` names the switch, block or ring whose hosts are used (None: all, or the only one), `profile`
supplies the user's figures for missing ones, `assumptions` collects those made so far.
"""

from collections.abc import Sequence
from itertools import groupby, pairwise
from math import prod

from attrs import astuple, frozen

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest.units import first_names
from nest_networks.files import host_names
from nest_networks.switched.network import host_grid, switched_network
from nest_networks.switched.profiles import USUAL
from nest_networks.switched.tree import Host, SwitchTree, united_switches


@frozen
class Switch:
    """A switch of topology/tree.

    Attributes:
        switch: its name.
        children: switches below it, as a list of hosts.
        nodes: hosts on it, as a list of hosts.
    """

    switch: str
    children: str = ""
    nodes: str = ""


@frozen
class Block:
    """A block of topology/block: its name, and its hosts as a list of hosts."""

    block: str
    nodes: str = ""


ONE_OF_THEM = (
    "Plan one of them: write its name behind the file's, `topology.conf#NAME` or `topology.yaml#TOPOLOGY/NAME`."
)
"""Remedy for networks without links between them."""

ROOT = "all blocks"
"""The switch above all blocks, of which the file says nothing."""


def tree(
    switches: Sequence[Switch],
    blocks: Sequence[Block],
    part: str | None,
    profile: LinkProfile | None,
    assumptions: Sequence[str] = (),
) -> Imported:
    """The network of topology/tree; blocks listed beside are domains in it.

    Jobs only span nodes connected by the same switches (topology.conf(5), topology/tree), so several trees are several
    clusters.

    Raises:
        InputError: the switches make no tree, or none of them is `part`.
    """
    _check_named(switches)
    if part is not None:
        switches = _below(part, switches)
    domains = {node: each.block for each in blocks for node in host_names(each.nodes)}
    hosts = [
        Host(node, switch.switch, domain=domains.get(node)) for switch in switches for node in host_names(switch.nodes)
    ]
    links = [(child, switch.switch) for switch in switches for child in host_names(switch.children)]
    named, parents, sentences = united_switches(hosts, links)
    return switched_network(
        SwitchTree(named, parents, remedy=ONE_OF_THEM), profile, assumptions=[*assumptions, *sentences]
    )


def layers_of(switches: Sequence[Switch]) -> dict[str, tuple[str, ...]]:
    """The switches above each host of topology/tree, the nearest first.

    Raises:
        InputError: a switch is described twice, is below itself or two others, or has no line of its own.
    """
    _check_named(switches)
    parents: dict[str, str] = {}
    for switch in switches:
        for child in host_names(switch.children):
            if parents.setdefault(child, switch.switch) != switch.switch:
                raise InputError(f"switch {child!r:.60} is below two others; with several device types, list it once.")
    layers = {}
    for switch in switches:
        above = [switch.switch]
        while above[-1] in parents:
            above.append(parents[above[-1]])
            if len(above) > len(switches):
                raise InputError(f"switch {switch.switch!r:.60} is above itself; correct the hierarchy.")
        layers.update(dict.fromkeys(host_names(switch.nodes), tuple(above)))
    return layers


def _check_named(switches: Sequence[Switch]) -> None:
    seen: set[str] = set()
    for switch in switches:
        if switch.switch in seen:
            raise InputError(f"switch {switch.switch!r:.60} is described twice; Slurm takes one line a switch.")
        seen.add(switch.switch)
        if switch.switch in host_names(switch.children):
            raise InputError(f"switch {switch.switch!r:.60} is below itself; leave it out of its own `Switches`.")
    below = (child for switch in switches for child in host_names(switch.children))
    lost = next((child for child in below if child not in seen), None)
    if lost is not None:
        raise InputError(f"switch {lost!r:.60} is below another one, but has no line of its own; add it.")


def _below(part: str, switches: Sequence[Switch]) -> list[Switch]:
    """The switch called `part` and those below it."""
    children = {switch.switch: host_names(switch.children) for switch in switches}
    if part not in children:
        raise InputError(f"there is no switch {part!r:.60} in the file; it has {first_names([*children], 5)}.")
    inside, waiting = {part}, [part]
    while waiting:
        fresh = [child for child in children[waiting.pop()] if child not in inside]
        inside.update(fresh)
        waiting += fresh
    return [switch for switch in switches if switch.switch in inside]


def block(
    blocks: Sequence[Block],
    sizes: Sequence[int],
    part: str | None,
    profile: LinkProfile | None,
    assumptions: Sequence[str] = (),
    *,
    usual: str = USUAL,
) -> Imported:
    """The network of topology/block: blocks, and groups of blocks next to each other.

    A group of size `sizes[i]` has `sizes[i] / sizes[0]` blocks (topology.conf(5), `BlockSizes`); the last group may
    have fewer. All blocks together are above them.

    `sizes`: base size and further sizes, in hosts; none: blocks only.
    `usual`: name of the catalogue's profile that completes it.

    Raises:
        InputError: sizes are none that Slurm takes, or no block is called `part`.
    """
    _check_sizes(sizes)
    names = [each.block for each in blocks]
    if part is not None and part not in names:
        raise InputError(f"there is no block {part!r:.60} in the file; it has {first_names(names, 5)}.")
    chosen = [each for each in blocks if part in (None, each.block)]
    twice = next((name for name, run in groupby(sorted(names)) if len(list(run)) > 1), None)
    if twice is not None:
        raise InputError(f"block {twice!r:.60} is described twice; Slurm takes one line a block.")
    hosts = [
        Host(node, f"block {each.block}", domain=each.block)
        for each in chosen
        for node in dict.fromkeys(host_names(each.nodes))
    ]
    parents: dict[str, str] = {}
    below, counts = [f"block {each.block}" for each in chosen], [size // sizes[0] for size in sizes[1:]]
    within, tiers = 1, ["block"]
    for count in [count for count in counts if count < len(chosen)]:
        width = count // within
        above = [f"{count} blocks, {place}" for place in range(-(-len(below) // width))]
        parents |= {child: above[place // width] for place, child in enumerate(below)}
        below, within = above, count
        tiers.append(f"{count} blocks")
    if len(below) > 1:
        tiers.append(ROOT)
        parents |= dict.fromkeys(below, ROOT)
    tree = SwitchTree(tuple(hosts), parents, names=tiers)
    return switched_network(tree, profile, usual=usual, assumptions=assumptions)


def _check_sizes(sizes: Sequence[int]) -> None:
    if any(size < 1 for size in sizes):
        raise InputError("a block size is below 1; sizes count hosts.")
    for small, large in pairwise(sizes):
        ratio, rest = divmod(large, small)
        if rest or ratio < 2 or ratio & (ratio - 1):
            raise InputError(
                f"block sizes {small} and {large} follow each other; each must be twice, four times or so the one "
                "before."
            )


@frozen
class Ring:
    """A ring of topology/ring: its name, and its hosts in order as a list of hosts."""

    ring: str
    nodes: str = ""


def ring(
    rings: Sequence[Ring], part: str | None, profile: LinkProfile | None, assumptions: Sequence[str] = ()
) -> Imported:
    """The network of topology/ring: each host joined to the next one, the last to the first.

    Jobs get segments of one ring (topology.conf(5), topology/ring), so several rings are several clusters.

    Raises:
        InputError: there are several rings and none is named, none is called `part`, or it has no hosts.
    """
    chosen = _one([each.ring for each in rings], part, "ring")
    hosts = host_names(rings[chosen].nodes)
    if not hosts:
        raise InputError(f"ring {rings[chosen].ring!r:.60} has no hosts.")
    places: dict[tuple[int, ...], str] = {(place,): name for place, name in enumerate(hosts)}
    return host_grid((len(hosts),), places, profile, assumptions)


@frozen
class Point:
    """A point of a torus, or its points along each axis."""

    x: int = 0
    y: int = 0
    z: int = 0


@frozen
class Region:
    """Hosts of a part of a torus.

    Attributes:
        dims: points along each axis.
        nodes: its hosts, the first axis counting fastest, as a list of hosts.
        anchor: its first point.
    """

    dims: Point
    nodes: str
    anchor: Point = Point()


def torus(
    dims: Point, regions: Sequence[Region], profile: LinkProfile | None, assumptions: Sequence[str] = ()
) -> Imported:
    """The network of topology/torus3d: each host joined to the next one along x, y and z, the last to the first.

    Hosts lie with x counting fastest, then y, then z (src/plugins/topology/torus3d/torus3d_record.c). Placements, which
    say where jobs may lie, are not part of the network.

    Raises:
        InputError: the hosts do not fit into the torus.
    """
    size = astuple(dims)
    places: dict[tuple[int, ...], str] = {}
    for region in regions:
        part, anchor = astuple(region.dims), astuple(region.anchor)
        if min(*size, *part) < 1 or min(anchor) < 0:
            raise InputError("a torus has at least one host along each axis, and places count from 0.")
        if any(first + count > most for first, count, most in zip(anchor, part, size, strict=True)):
            raise InputError(f"a region of {_by(part)} hosts does not fit into the torus of {_by(size)}.")
        hosts = host_names(region.nodes)
        if len(hosts) != prod(part):
            raise InputError(f"{len(hosts)} hosts are listed for {_by(part)} places; list as many as there are.")
        for index, name in enumerate(hosts):
            steps = (index % part[0], index // part[0] % part[1], index // prod(part[:2]))
            point = tuple(first + step for first, step in zip(anchor, steps, strict=True))
            if point in places:
                raise InputError(f"hosts {places[point]!r:.60} and {name!r:.60} are at the same place of the torus.")
            places[point] = name
    if not places:
        raise InputError("the torus has no hosts.")
    return host_grid(size, places, profile, assumptions)


def _by(dims: Sequence[int]) -> str:
    return " x ".join(map(str, dims))


def _one(names: Sequence[str], part: str | None, kind: str) -> int:
    """Choose one of several networks of a kind.

    Raises:
        InputError: several are there and none is named, or none is called `part`.
    """
    if part is not None:
        if part not in names:
            raise InputError(f"there is no {kind} {part!r:.60} in the file; it has {first_names(names, 5)}.")
        return list(names).index(part)
    if len(names) > 1:
        raise InputError(
            f"the file has several networks that no link joins: the {kind}s {first_names(names, 5)}. {ONE_OF_THEM}"
        )
    return 0
