"""Clusters of machines of which one is known inside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from nest.formulate.importing import cluster_of
from nest.instance import Cluster, Level
from nest.network.graph import NetworkBuilder
from nest.network.imported import Imported
from nest.spec import LevelSpec, TierSpec
from nest.units import BytesPerSecond

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
    assert any(f"{hosts} such machines" in sentence for sentence in found.assumptions)


def test_one_host_is_the_machine_itself() -> None:
    machine = Imported((NODE,))
    assert cluster_of(machine, 1) is machine


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


def test_a_cluster_keeps_its_levels() -> None:
    found = cluster_of(Imported(Cluster((Level("node", 4, 1e11, 2e-6),), 80e9), devices_per_host=4, adapters=NDR), 2)
    assert [(level.fanout, level.bandwidth) for level in levels(found)] == [(4, 1e11), (2, 50e9)]


@pytest.mark.parametrize(
    ("hosts", "tier", "told"),
    [
        (0, NDR, "at least one host"),
        (2, None, "name a link profile"),
        (2, TierSpec("ethernet"), "bandwidth is missing"),
    ],
)
def test_what_cannot_be_is_told(hosts: int, tier: TierSpec | None, told: str) -> None:
    with pytest.raises(InputError, match=told):
        cluster_of(Imported((NODE,), devices_per_host=8), hosts, tier)


def test_the_file_wins_over_the_tier() -> None:
    machine = Imported((NODE,), devices_per_host=8, adapters=NDR)
    assert levels(cluster_of(machine, 4, TierSpec("infiniband-hdr"))) == levels(cluster_of(machine, 4))


@pytest.mark.parametrize("network", [Imported((NODE,)), Imported((NODE,), hosts=("one",), devices_per_host=8)])
def test_a_network_of_machines_is_not_one_machine(network: Imported) -> None:
    with pytest.raises(InputError, match="does not describe one machine"):
        cluster_of(network, 2, NDR)
