"""Random trees of switches, and what any two hosts have between them, found link by link."""

from itertools import pairwise

from hypothesis import strategies as st

from nest_networks.switched.tree import Host, SwitchTree

DEVICES = 2
"""Accelerators of a host."""


@st.composite
def trees(draw: st.DrawFn) -> SwitchTree:
    """A tree whose links are all counted; uneven in depth, in hosts and in links."""
    count = draw(st.integers(1, 6))
    parents = {f"s{index}": f"s{draw(st.integers(0, index - 1))}" for index in range(1, count)}
    leaves = draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=10))
    bandwidths = st.sampled_from([1e9, 2e9, 3e9])
    hosts = tuple(
        Host(f"h{index}", f"s{leaf}", bandwidth=draw(bandwidths) * 8, devices=DEVICES)
        for index, leaf in enumerate(leaves)
    )
    return SwitchTree(hosts, parents, {name: draw(bandwidths) * 4 for name in parents})


def way(tree: SwitchTree, host: Host) -> list[str]:
    """The switches above a host, nearest first."""
    found = [host.switch]
    while found[-1] in tree.parents:
        found.append(tree.parents[found[-1]])
    return found


def between(tree: SwitchTree, one: Host, two: Host) -> float:
    """Nominal bytes per second that an accelerator of `one` has to one of `two` when all send at once."""
    ways = [way(tree, one), way(tree, two)]
    meeting = next(switch for switch in ways[0] if switch in ways[1])
    links = []
    for host, climbed in ((one, ways[0]), (two, ways[1])):
        links.append(host.bandwidth / DEVICES)  # type: ignore[operator]
        for below, _ in pairwise(climbed[: climbed.index(meeting) + 1]):
            links.append(tree.uplinks[below] / (DEVICES * tree.counts[below]))
    return min(links)
