"""Random trees, blocks and fabrics in the form of every importer come back the same, by any names and in any order."""

import json
import random
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from nest.catalogue import profile
from nest.errors import InputError
from nest.network import LinkGraph, pairs
from nest.network.imported import Imported
from nest.spec import LinkProfile, TierSpec
from nest.units import BytesPerSecond
from networks_tests.fabrics import FatTree, fat_trees, ibnetdiscover
from networks_tests.field import read

RATES = (50e9, 25e9, 12e9, 6e9, 3e9)
STEEP = LinkProfile(tiers=tuple(TierSpec(bandwidth=BytesPerSecond(each)) for each in RATES))
H100 = "NVIDIA-H100-80GB-HBM3"

Between = dict[frozenset[str], float]
"""Bytes per second that every two hosts have between them."""


@frozen
class Tree:
    """A switch with hosts or switches below it."""

    name: str
    hosts: tuple[str, ...] = ()
    below: "tuple[Tree, ...]" = ()

    @property
    def height(self) -> int:
        return 1 + max((each.height for each in self.below), default=0)

    @property
    def every(self) -> "Iterator[Tree]":
        yield self
        for each in self.below:
            yield from each.every

    @property
    def members(self) -> list[str]:
        return [*self.hosts, *(name for each in self.below for name in each.members)]

    def layers(self, above: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
        """The switches above each host, the nearest first."""
        found = dict.fromkeys(self.hosts, (self.name, *above))
        for each in self.below:
            found |= each.layers((self.name, *above))
        return found

    def between(self) -> Between:
        """The tier of the switch where two hosts meet, which counts from the hosts that are farthest below it."""
        found = {frozenset(pair): RATES[self.height - 1] for pair in combinations(self.members, 2)}
        for each in self.below:
            found |= each.between()
        return found


@st.composite
def trees(draw: st.DrawFn, ragged: bool = True) -> Tree:
    """Up to three tiers of switches; hosts and switches are called by numbers in any order."""
    numbers = draw(st.permutations(range(60)))
    names = iter(numbers)
    depth, wide = draw(st.integers(1, 3)), draw(st.lists(st.integers(1, 3), min_size=4, max_size=4))

    def grown(tier: int) -> Tree:
        name = f"s{next(names)}"
        leaf = tier == 1 or (ragged and tier < depth and draw(st.integers(0, 3)) == 0)
        count = draw(st.integers(1, 3)) if ragged else wide[tier]
        if leaf:
            return Tree(name, tuple(f"n{next(names)}" for _ in range(count)))
        return Tree(name, (), tuple(grown(tier - 1) for _ in range(count)))

    tree = grown(depth)
    return tree if len(tree.members) > 1 else Tree("s99", (), (tree, Tree("s98", ("n99",))))


def between(found: Imported) -> Between:
    """What the first accelerators of every two hosts have between them."""
    network = found.network
    if isinstance(network, LinkGraph):
        first = {name.rpartition(".")[0]: at for at, name in enumerate(pairs(network).names) if name.endswith(".0")}
        bandwidth = pairs(network).bandwidth
        return {frozenset((one, two)): float(bandwidth[first[one], first[two]]) for one, two in combinations(first, 2)}
    assert isinstance(network, tuple)
    result, size = Between(), 1
    for level in network:
        size *= level.fanout
        width = size // (found.devices_per_host or 1)
        for one, two in combinations(range(len(found.hosts)), 2):
            if width and one // width == two // width:
                result.setdefault(frozenset((found.hosts[one], found.hosts[two])), float(level.bandwidth or 0))
    return result


def conf(tree: Tree, shuffle: random.Random) -> str:
    lines = [f"SwitchName={each.name} {_own(each, 'Nodes={}', 'Switches={}')}" for each in tree.every]
    shuffle.shuffle(lines)
    return "\n".join(lines) + "\n"


def _own(switch: Tree, hosts: str, below: str) -> str:
    """The hosts on a switch, or the switches below it, as a form writes them."""
    names = switch.hosts or tuple(each.name for each in switch.below)
    return (hosts if switch.hosts else below).format(",".join(names))


def scontrol(tree: Tree, shuffle: random.Random) -> str:
    lines = [
        f"SwitchName={each.name} Level={each.height - 1} LinkSpeed=1 Nodes={','.join(each.members)} "
        + _own(each, "", "Switches={}")
        for each in tree.every
    ]
    shuffle.shuffle(lines)
    return "\n".join(lines) + "\n"


NODES, CHILDREN = "nodes: '{}'", "children: '{}'"


def yaml(tree: Tree, shuffle: random.Random) -> str:
    rows = [f"{{switch: {each.name}, {_own(each, NODES, CHILDREN)}}}" for each in tree.every]
    shuffle.shuffle(rows)
    return f"- topology: topo/tree\n  cluster_default: true\n  tree: {{switches: [{', '.join(rows)}]}}\n"


def shuffled(tree: Tree, shuffle: random.Random) -> list[tuple[str, tuple[str, ...]]]:
    rows = list(tree.layers().items())
    shuffle.shuffle(rows)
    return rows


def kubernetes(tree: Tree, shuffle: random.Random, tier: str = "fabric.topograph.run/tier-{}") -> dict[str, Any]:
    items = []
    for name, layers in shuffled(tree, shuffle):
        labels = {tier.format(at): switch for at, switch in enumerate(layers)}
        metadata = {"name": name, "labels": {**labels, "nvidia.com/gpu.product": H100}}
        items.append({"kind": "Node", "metadata": metadata, "status": {"allocatable": {"nvidia.com/gpu": "8"}}})
    return {"kind": "List", "items": items}


def instances(tree: Tree, shuffle: random.Random) -> dict[str, Any]:
    rows = shuffled(tree, shuffle)
    return {"instances": [{"id": name, "network_layers": list(layers)} for name, layers in rows]}


def aws(tree: Tree, shuffle: random.Random) -> dict[str, Any]:
    rows = shuffled(tree, shuffle)
    return {"Instances": [{"InstanceId": name, "NetworkNodes": list(reversed(layers))} for name, layers in rows]}


def model(tree: Tree, shuffle: random.Random) -> dict[str, Any]:
    switches = {each.name: {"switches": [one.name for one in each.below]} for each in tree.every}
    blocks = [{"switch": each.name, "nodes": list(each.hosts)} for each in tree.every if each.hosts]
    shuffle.shuffle(blocks)
    return {"switches": switches, "blocks": blocks}


FORMS: dict[str, tuple[Callable[[Tree, random.Random], Any], str]] = {
    "topology.conf": (conf, "topology.conf"), "scontrol": (scontrol, "printed.txt"), "topology.yaml": (yaml, "t.yaml"),
    "kubernetes": (kubernetes, "nodes.json"), "topograph": (model, "model.json"),
    "topograph instances": (instances, "instances.json"), "aws": (aws, "aws.json"),
}  # fmt: skip


@pytest.mark.longer
@pytest.mark.parametrize("form", FORMS)
@given(tree=st.one_of(trees(), trees(ragged=False)), seed=st.integers(0, 999))
def test_trees_come_back(form: str, tree: Tree, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    write, name = FORMS[form]
    found = read(tmp_path_factory.mktemp("form"), write(tree, random.Random(seed)), STEEP, name)
    assert between(found) == pytest.approx(tree.between())


@pytest.mark.longer
@pytest.mark.parametrize("form", ["slurm.conf", "scontrol show nodes", "sinfo"])
@given(tree=st.one_of(trees(), trees(ragged=False)), seed=st.integers(0, 999))
def test_nodes_beside_their_switches_come_back(
    form: str, tree: Tree, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, shuffle = tmp_path_factory.mktemp("form"), random.Random(seed)
    (folder / "topology.conf").write_text(conf(tree, shuffle))
    names = [name for name, _ in shuffled(tree, shuffle)]
    text = {
        "slurm.conf": "".join(f"NodeName={name} Gres=gpu:h100:8\n" for name in names),
        "scontrol show nodes": "".join(f"NodeName={name} Arch=x86_64\n   Gres=gpu:h100:8\n\n" for name in names),
        "sinfo": "NODELIST STATE GRES\n" + "".join(f"{name} idle gpu:h100:8\n" for name in names),
    }[form]  # fmt: skip
    assert between(read(folder, text, STEEP)) == pytest.approx(tree.between())


@st.composite
def blocks(draw: st.DrawFn) -> tuple[list[list[str]], int]:
    """Blocks of equally many hosts, and how many blocks are a group: 1, 2 or 4."""
    count, hosts = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    names = iter(draw(st.permutations([f"n{at}" for at in range(24)])))
    return [[next(names) for _ in range(hosts)] for _ in range(count)], draw(st.sampled_from([1, 2, 4]))


@pytest.mark.longer
@pytest.mark.parametrize("form", ["topology.conf", "scontrol", "topology.yaml"])
@given(drawn=blocks())
def test_blocks_come_back(
    form: str, drawn: tuple[list[list[str]], int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    own, group = drawn
    size = len(own[0])
    if len(own) * size < 2:
        return
    sizes = [size] if group == 1 else [size, group * size]
    starts = range(0, len(own), group) if group > 1 else ()
    groups = [",".join(name for each in own[at : at + group] for name in each) for at in starts]
    named = [(f"b{at}", ",".join(hosts)) for at, hosts in enumerate(own)]
    text = {
        "topology.conf": "".join(f"BlockName={name} Nodes={hosts}\n" for name, hosts in named)
        + f"BlockSizes={','.join(map(str, sizes))}\n",
        "scontrol": "".join(
            f"BlockName={name} BlockIndex={at} Nodes={hosts} BlockSize={size}\n"
            for at, (name, hosts) in enumerate(named)
        )
        + "".join(
            f"AggregatedBlock=b{at} BlockIndex={at} Nodes={part} BlockSize={group * size}\n"
            for at, part in enumerate(groups)
        ),
        "topology.yaml": "- topology: t\n  block: "
        + json.dumps({"block_sizes": sizes, "blocks": [{"block": name, "nodes": hosts} for name, hosts in named]}),
    }[form]
    name = {"topology.conf": "topology.conf", "scontrol": "printed.txt", "topology.yaml": "topology.yaml"}[form]
    place = {host: at for at, hosts in enumerate(own) for host in hosts}
    split = 1 < group < len(own)
    expected = {}
    for one, two in combinations(place, 2):
        near, far = place[one] == place[two], split and place[one] // group != place[two] // group
        expected[frozenset((one, two))] = RATES[0] if near else RATES[2] if far else RATES[1]
    assert between(read(tmp_path_factory.mktemp("form"), text, STEEP, name)) == pytest.approx(expected)


def renamed(links: list[tuple[str, str]], seed: int) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """`links` in another order, with other names of hosts and switches; what each is called."""
    shuffle = random.Random(seed)
    switches = sorted({end for link in links for end in link if "/" not in end})
    hosts = sorted({end.split("/")[0] for link in links for end in link if "/" in end})
    order = list(range(len(switches) + len(hosts)))
    shuffle.shuffle(order)
    called = {name: f"x{number}" for name, number in zip([*switches, *hosts], order, strict=True)}
    result = [
        tuple(f"{called[end.split('/')[0]]}/{end.split('/')[1]}" if "/" in end else called[end] for end in link)
        for link in links
    ]
    shuffle.shuffle(result)
    return result, called  # type: ignore[return-value]


@pytest.mark.longer
@given(tree=fat_trees(rails=(4, 8)), lost=st.integers(0, 3), seed=st.integers(0, 999))
def test_fabrics_are_the_same_by_any_name_and_order(
    tree: FatTree, lost: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Fat trees, and irregular ones that have lost some of the cables between switches."""
    links = tree.links()
    inner = [link for link in links if "/" not in link[0]]
    gone = random.Random(seed).sample(inner, min(lost, max(0, len(inner) - 1)))
    for each in gone:
        links.remove(each)
    folder, other = tmp_path_factory.mktemp("form"), renamed(links, seed)

    def of(rows: list[tuple[str, str]]) -> "Imported | str":
        try:
            return read(folder, ibnetdiscover(rows, "4xNDR"), profile("h100-ndr"))
        except InputError as error:  # Hosts that lost their only way are refused, by any name.
            return type(error).__name__

    one, two = of(links), of(other[0])
    if isinstance(one, str) or isinstance(two, str):
        assert one == two
        return
    called = {other[1][name]: name for name in other[1]}
    back = {frozenset(called[name] for name in pair): rate for pair, rate in between(two).items()}
    assert back == pytest.approx(between(one))
    whole = between(read(folder, ibnetdiscover(tree.links(), "4xNDR"), profile("h100-ndr")))
    assert all(rate <= whole[pair] * 1.0001 for pair, rate in between(one).items())
