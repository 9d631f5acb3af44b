"""Fat trees with rails, as they are built, and as tools print them."""

from attrs import field, frozen
from hypothesis import strategies as st


@frozen
class FatTree:
    """Hosts with a link to the leaf switch of each rail of their unit; leaf switches, spines of a pod, cores above all.

    Attributes:
        pods: whose spines meet at cores only; one needs no core.
        units: of a pod: hosts that share leaf switches; one in one pod needs no spine.
        hosts: of a unit.
        rails: links of a host, each to a leaf switch of its own.
        spines: of a pod, each linked to all its leaf switches.
        uplinks: links of a leaf switch to each spine.
        cores: each linked to all spines.
        core_links: links of a spine to each core.
    """

    pods: int
    units: int
    hosts: int
    rails: int
    spines: int
    uplinks: int
    cores: int
    core_links: int
    names: str = field(default="dgx-{:03}")

    @property
    def members(self) -> list[str]:
        """The hosts, by unit."""
        return [self.names.format(index) for index in range(self.pods * self.units * self.hosts)]

    def links(self) -> list[tuple[str, str]]:
        """The two ends of every link: NICs as `HOST/RAIL`, switches by their names."""
        found = []
        for pod in range(self.pods):
            for unit in range(self.units):
                place = pod * self.units + unit
                own = self.members[place * self.hosts : (place + 1) * self.hosts]
                for rail in range(self.rails):
                    leaf = f"leaf{place}.{rail}"
                    found += [(f"{host}/{rail}", leaf) for host in own]
                    found += [
                        (leaf, f"spine{pod}.{spine}") for spine in range(self.spines) for _ in range(self.uplinks)
                    ]
            for spine in range(self.spines):
                found += [
                    (f"spine{pod}.{spine}", f"core{core}") for core in range(self.cores) for _ in range(self.core_links)
                ]
        return found

    def shares(self) -> tuple[float, float, float]:
        """Of a link, what each NIC gets inside its unit, its pod, and between pods, when all send."""
        pod = min(1.0, self.spines * self.uplinks / self.hosts)
        nics = self.units * self.hosts * self.rails
        return 1.0, pod, min(pod, self.spines * self.cores * self.core_links / nics)


def fat_trees(rails: tuple[int, ...] = (1, 2, 4, 8)) -> st.SearchStrategy[FatTree]:
    """Small ones."""
    few = st.integers(1, 3)
    return st.builds(FatTree, few, few, st.integers(2, 4), st.sampled_from(rails), few, few, few, few)


def guids(links: list[tuple[str, str]]) -> dict[str, str]:
    """What ibnetdiscover calls the ends of `links`."""
    ends = list(dict.fromkeys(end for link in links for end in link))
    return {end: f"{'H' if '/' in end else 'S'}-{0xE09D730300000000 + index:016x}" for index, end in enumerate(ends)}


def ibnetdiscover(links: list[tuple[str, str]], rate: str, nic: str = "HCA-{}", *, nics: bool = True) -> str:
    """`links` as ibnetdiscover prints them; without `nics` the part of the switches only."""
    of, ports, count = guids(links), {end: [] for link in links for end in link}, {}  # type: ignore[var-annotated]
    for one, two in links:
        here, there = (count.setdefault(end, 0) + 1 for end in (one, two))
        count[one], count[two] = here, there
        ports[one].append((here, two, there))
        ports[two].append((there, one, here))
    said = {end: end if "/" not in end else f"{end.split('/')[0]} {nic.format(end.split('/')[1])}" for end in of}
    text = "#\n# Topology file: generated on Fri Aug  8 06:33:24 2025\n#\n"
    for end in sorted(of, key=lambda each: of[each]):
        if "/" not in end:
            text += f"\nvendid=0x2c9\ndevid=0xd2f2\nswitchguid=0x{of[end][2:]}({of[end][2:]})\n"
            text += f'Switch\t65 "{of[end]}"\t\t# "{said[end]}" enhanced port 0 lid 73 lmc 0\n'
            for here, other, there in ports[end]:
                port = f"({of[other][2:]}) " if "/" in other else ""
                text += f'[{here}]\t"{of[other]}"[{there}]{port}\t\t# "{said[other]}" lid 1 {rate}\n'
        elif nics:
            text += f'\nvendid=0x2c9\ndevid=0x1021\ncaguid=0x{of[end][2:]}\nCa\t1 "{of[end]}"\t\t# "{said[end]}"\n'
            for here, other, there in ports[end]:
                text += (
                    f'[{here}]({of[end][2:]}) \t"{of[other]}"[{there}]\t\t# lid 6 lmc 0 "{said[other]}" lid 7 {rate}\n'
                )
    return text
