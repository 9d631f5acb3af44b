"""What files of networks become: importers, link profiles, clusters of one known machine."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from nest.catalogue import network_levels, profile, profiles
from nest.errors import InputError
from nest.formulate.cluster import build_cluster, cluster_of
from nest.formulate.topology import in_place
from nest.hooks import hook
from nest.hooks.registry import Registry, registry
from nest.io import structure, unstructure
from nest.network.graph import NetworkBuilder
from nest.network.imported import Imported, PartOf
from nest.spec import ClusterSpec, LevelSpec, LinkProfile, TierSpec
from nest.units import BytesPerSecond

LEVELS = (LevelSpec(2, link="nvlink4", name="host"), LevelSpec(3, link="infiniband-ndr", name="leaf"))
FOUND = Imported(LEVELS, ("a", "b", "c"), "h100-sxm", ("Links are guessed.",), 2)


class Own:
    """An importer of `.own` files that remembers what it was given."""

    name = "own"
    profiled = True

    def __init__(self, answer: Imported) -> None:
        self.answer = answer
        self.given: list[Any] = []

    def accepts(self, source: Any) -> bool:
        path = source.path if isinstance(source, PartOf) else source
        return isinstance(path, Path) and ".own" in path.name

    def load(self, source: Any, profile: LinkProfile | None = None) -> Imported:
        self.given.append((source, profile))
        return self.answer


def known(importer: Own) -> Registry:
    class Plugin:
        @hook
        def nest_topology_importers(self) -> list[Any]:
            return [importer]

    return registry(extra=[Plugin()])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.own").write_text("")
    (tmp_path / "net.own#odd").write_text("")
    return tmp_path


def test_levels_hosts_and_device_arrive_in_the_section(folder: Path) -> None:
    held = in_place(ClusterSpec(topology="net.own"), known(Own(FOUND)), folder)
    assert held == ClusterSpec(
        levels=LEVELS, device="h100-sxm", hosts=("a", "b", "c"), devices_per_host=2, assumed=("Links are guessed.",)
    )
    assert structure(unstructure(held), ClusterSpec) == held


def test_the_section_alone_gives_the_same_cluster_with_what_links_tell(folder: Path) -> None:
    spec = ClusterSpec(topology="net.own")
    direct = build_cluster(spec, known(Own(FOUND)), folder)
    again = build_cluster(in_place(spec, known(Own(FOUND)), folder), registry(), None)
    assert direct == again
    assert direct[0].levels == network_levels(LEVELS)
    assert direct[0].levels[0].lines


def test_what_the_problem_says_wins(folder: Path) -> None:
    spec = ClusterSpec(topology="net.own", device="b200-sxm", hosts=("x", "y", "z"), memory=7e9)  # type: ignore[arg-type]
    held = in_place(spec, known(Own(FOUND)), folder)
    assert (held.device, held.hosts, held.memory) == ("b200-sxm", ("x", "y", "z"), 7e9)


def test_the_importer_is_told_what_the_problem_says(folder: Path) -> None:
    own = Own(FOUND)
    in_place(ClusterSpec(topology="net.own"), known(own), folder)
    in_place(ClusterSpec(topology="net.own", device="b200-sxm", devices_per_host=2), known(own), folder)
    in_place(ClusterSpec(topology="net.own", link_profile="a100-hdr"), known(own), folder)
    in_place(ClusterSpec(topology="net.own", link_profile="a100-hdr", devices_per_host=4), known(own), folder)
    assert [profile for _, profile in own.given] == [
        None,
        LinkProfile(device="b200-sxm", devices_per_host=2),
        profile("a100-hdr"),
        evolve(profile("a100-hdr"), devices_per_host=4),
    ]


def test_a_part_of_a_file_is_asked_for_behind_its_name(folder: Path) -> None:
    own = Own(FOUND)
    in_place(ClusterSpec(topology="net.own#east"), known(own), folder)
    in_place(ClusterSpec(topology="net.own#odd#x"), known(own), folder)
    assert own.given[0][0] == PartOf(folder / "net.own", "east")
    assert own.given[1][0] == PartOf(folder / "net.own#odd", "x")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"link_profile": "a100-hdr", "levels": [{"fanout": 2, "link": "nvlink4"}]}, "needs a `topology` file"),
        ({"topology": "ring.graphml", "link_profile": "a100-hdr"}, "needs no profile"),
        ({"topology": "net.own", "link_profile": "a100"}, "link profile.*a100-hdr"),
        ({"topology": "net.own", "link_profile": "none.toml"}, "there is no file"),
        ({"topology": "net.own", "link_profile": "typo.toml"}, r"typo.toml: tiers\[1\].link: there is no link"),
        (
            {"topology": "net.own", "link_profile": {"device": "h100"}},
            "cluster.link_profile.device: there is no device",
        ),
        ({"topology": "net.own", "hosts": ["a", "b"], "devices_per_host": 2}, "names 2 hosts of 2 devices"),
        ({"topology": "net.own", "devices_per_host": 4}, "names 3 hosts of 4 devices"),
        ({"levels": [{"fanout": 6, "link": "nvlink4"}], "hosts": ["a", "b", "c", "d"], "memory": 1e9}, "names 4 hosts"),
        ({"levels": [{"fanout": 6, "link": "nvlink4"}], "devices_per_host": 4, "memory": 1e9}, "does not divide"),
        ({"topology": "ring.graphml#part"}, "reads a part 'part'"),
        ({"topology": "gone.own#part"}, "no importer knows"),
    ],
)
def test_what_does_not_fit_together_is_refused(spec: dict[str, Any], reason: str, folder: Path) -> None:
    text = (Path(__file__).parents[2] / "plugins/nest-testing/src/nest_testing/data/ring.graphml").read_text()
    (folder / "ring.graphml").write_text(text)
    (folder / "typo.toml").write_text('tiers = [{link = "ethernet"}, {link = "etherne", bandwidth = 1e9}]')
    with pytest.raises(InputError, match=reason.replace(" ", r"\s")):
        build_cluster(structure(spec, ClusterSpec), known(Own(FOUND)), folder)


@pytest.mark.parametrize("name", profiles())
def test_profiles_of_the_catalogue_are_complete_and_have_sources(name: str) -> None:
    found = profile(name)
    assert found.name == name
    assert found.description
    assert found.sources
    assert found.device
    assert found.devices_per_host
    assert found.host is not None
    tiers = [found.host, *([found.domain] if found.domain else []), *found.tiers]
    levels = [LevelSpec(2, tier.bandwidth, tier.latency, link=tier.link) for tier in tiers]
    assert all(level.bandwidth >= BytesPerSecond(1e9) for level in network_levels(levels))


NODE = LevelSpec(8, name="node", link="nvlink4")
NDR = TierSpec("infiniband", BytesPerSecond(50e9))


def levels(found: Imported) -> tuple[LevelSpec, ...]:
    assert isinstance(found.network, tuple)
    return found.network


@given(st.integers(2, 10_000), st.floats(1e9, 1e12))
def test_adapters_make_the_outermost_level(hosts: int, bandwidth: float) -> None:
    machine = Imported((NODE,), device="h100-sxm", devices_per_host=8, adapters=TierSpec("infiniband", bandwidth))
    found = cluster_of(machine, hosts)
    assert levels(found) == (NODE, LevelSpec(hosts, bandwidth, name="fabric", link="infiniband"))
    assert (found.device, found.devices_per_host, found.hosts) == ("h100-sxm", 8, ())
    assert any(f"{hosts} machines on a non-blocking" in sentence for sentence in found.assumptions)


def test_a_tier_serves_where_the_file_has_no_adapters() -> None:
    tier = TierSpec("infiniband-ndr", oversubscription=2.0)
    found = cluster_of(Imported((NODE,), devices_per_host=8), 4, tier)
    assert levels(found)[-1] == LevelSpec(4, BytesPerSecond(25e9), name="fabric", link="infiniband-ndr")


def test_a_graph_is_reduced_to_levels_first() -> None:
    builder = NetworkBuilder()
    switches = [builder.switch(f"switch {index}") for index in range(2)]
    for index in range(4):
        builder.link(builder.device(f"GPU{index}"), switches[index % 2], 20e9, 1e-6)
    builder.link(*switches, 10e9, 0.0)
    found = cluster_of(Imported(builder.built(), devices_per_host=4, adapters=NDR), 3)
    assert [level.fanout for level in levels(found)] == [2, 2, 3]
    assert [level.bandwidth for level in levels(found)] == [20e9, 5e9, 50e9]
    assert any("GPU0, GPU2, GPU1, GPU3" in sentence for sentence in found.assumptions)


@pytest.mark.parametrize(
    ("hosts", "tier", "told"),
    [(0, NDR, "at least one host"), (2, None, "add --link-profile"), (2, TierSpec("ethernet"), "bandwidth is missing")],
)
def test_what_cannot_be_is_told(hosts: int, tier: TierSpec | None, told: str) -> None:
    with pytest.raises(InputError, match=told):
        cluster_of(Imported((NODE,), devices_per_host=8), hosts, tier)


@pytest.mark.parametrize("network", [Imported((NODE,)), Imported((NODE,), hosts=("one",), devices_per_host=8)])
def test_a_network_of_machines_is_not_one_machine(network: Imported) -> None:
    with pytest.raises(InputError, match="does not describe a single machine"):
        cluster_of(network, 2, NDR)
