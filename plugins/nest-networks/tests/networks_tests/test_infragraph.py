from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.catalogue import link, profile, published_devices
from nest.errors import InputError
from nest.network.graph import LinkGraph
from networks_tests.field import imported, reduced, told


def edge(one: str, two: str, link: str, scheme: str = "many2many") -> dict[str, Any]:
    return {"ep1": {"component": one}, "ep2": {"component": two}, "link": link, "scheme": scheme}


def component(name: str, count: int, choice: str) -> dict[str, Any]:
    return {"name": name, "count": count, "choice": choice}


def rated(name: str, gigabits: float) -> dict[str, Any]:
    return {"name": name, "physical": {"bandwidth": {"choice": "gigabits_per_second", "gigabits_per_second": gigabits}}}


MACHINE: dict[str, Any] = {
    "name": "box",
    "components": [component("xpu", 4, "xpu"), component("nvsw", 2, "switch"), component("cpu", 1, "cpu")],
    "edges": [edge("xpu", "nvsw[0:2]", "fast"), edge("cpu", "xpu[0:2]", "slow")],
    "links": [{"name": "fast", "description": "nvlink_4"}, {"name": "slow"}],
}


def test_nvlink_of_the_catalogue_is_shared_out_to_switches_that_are_one() -> None:
    found = imported(MACHINE)
    [level] = reduced(found)
    assert (level.fanout, level.bandwidth) == (4, pytest.approx(0.68 * 450e9))
    assert isinstance(found.network, LinkGraph)
    assert [each for each in found.network.names if each.startswith("box")] == [f"box.{index}" for index in range(4)]
    assert found.devices_per_host == 4
    assert "Left out: the links slow" in told(found)


@given(hosts=st.integers(2, 4), nics=st.integers(2, 4))
def test_instances_of_devices(hosts: int, nics: int) -> None:
    source = {
        "devices": [
            {
                "name": "server",
                "components": [
                    component("xpu", nics, "xpu"), component("nic", nics, "nic"), component("bus", 1, "switch")
                ],
                "edges": [edge("xpu", "nic", "pcie", "one2one"), edge("xpu", "bus", "inside")],
                "links": [{"name": "pcie", "description": "PCI Express PCIE_GEN5 x16"}, rated("inside", 3200)],
            },
            {"name": "tor", "components": [component("port", 64, "port"), component("asic", 1, "switch")],
             "edges": [edge("port", "asic", "ic")], "links": [rated("ic", 51200)]},
        ],
        "instances": [{"name": "host", "device": "server", "count": hosts}, {"name": "leaf", "device": "tor"}],
        "links": [rated("cable", 400)],
        "edges": [
            {
                "ep1": {"instance": f"host[0:{hosts}]", "component": f"nic[0:{nics}]"},
                "ep2": {"instance": "leaf[0]", "component": f"port[:{hosts * nics}]"},
                "link": "cable",
                "scheme": "one2one",
            }
        ],
    }  # fmt: skip
    found = imported(source)
    inner, outer = reduced(found)
    assert (inner.fanout, inner.bandwidth) == (nics, 400e9)
    assert (outer.fanout, outer.bandwidth) == (hosts, 50e9)
    assert isinstance(found.network, LinkGraph)
    assert "host1.0" in found.network.names
    assert "PCI Express 5, 16 lanes" in told(found)


def test_devices_in_devices() -> None:
    card = {"name": "card", "components": [component("xpu", 1, "xpu"), component("plug", 1, "port")],
            "edges": [edge("xpu", "plug", "wire")], "links": [rated("wire", 80)]}  # fmt: skip
    box = {"name": "box", "components": [component("card", 3, "device"), component("hub", 1, "switch")],
           "edges": [edge("card[0:3].plug[0]", "hub", "wire")], "links": [rated("wire", 80)]}  # fmt: skip
    source = {"devices": [card, box], "instances": [{"name": "b", "device": "box", "count": 1}]}
    assert [(level.fanout, level.bandwidth) for level in reduced(imported(source))] == [(3, 10e9)]


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    source = deepcopy(MACHINE)
    place: Any = source
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return source


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            changed(("links", 0, "description"), "copper"),
            "without the links fast, slow, which have no physical.bandwidth",
        ),
        (changed(("components", 0, "count"), 1), "1 accelerators"),
        (changed(("components", 0, "count"), "x"), r"components\[0\].count must be a whole number"),
        (changed(("edges", 0, "ep2"), {"component": "gone"}), r"edges\[0\].ep2 is 'gone', which names no component"),
        (changed(("edges", 0, "ep2"), {"component": "nvsw[7]"}), "leads to 'device.0.nvsw.7', which does not exist"),
        (changed(("edges", 0, "ep2"), {"component": "nvsw[a]"}), "write `name`"),
        (changed(("edges", 0, "scheme"), "star"), "scheme is 'star'"),
        (changed(("edges",), 3), "edges must be a list"),
        (changed(("edges", 0, "ep1"), None), "ep1 of an edge must hold keys and values"),
        (changed(("links", 1, "physical"), {"bandwidth": {"gigabits_per_second": -1}}), "must be at least 0, is -1"),
        (changed(("components", 0, "count"), 10**9), "must be a whole number"),
        ({"devices": [], "instances": [{"name": "a", "device": "b"}]}, r"instances\[0\].device is 'b'"),
    ],
)
def test_what_cannot_be_is_named(source: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        imported(source)


def test_devices_inside_themselves() -> None:
    card = {"name": "card", "components": [component("card", 1, "device")], "edges": [], "links": []}
    with pytest.raises(InputError, match="inside themselves"):
        imported({"devices": [card], "instances": [{"name": "b", "device": "card", "count": 1}]})


def test_shared_samples(shared: Path) -> None:
    [level] = reduced(imported(shared / "topologies" / "misc" / "infragraph_dgx_h100.yaml"))
    assert (level.fanout, level.bandwidth) == (8, pytest.approx(306e9))


def servers(count: int) -> dict[str, Any]:
    """Servers of two accelerators under a switch, as infragraph's blueprints have them: links without bandwidths."""

    parts = [("cpu", "cpu", 1), ("xpu", "xpu", 2), ("nvlsw", "switch", 1), ("pciesw", "switch", 1), ("nic", "nic", 2)]
    server = {
        "name": "server",
        "components": [{"name": name, "choice": choice, "count": number} for name, choice, number in parts],
        "links": [{"name": name} for name in ("fabric", "nvlink", "pcie")],
        "edges": [
            edge("xpu", "nvlsw", "nvlink"), edge("cpu[0]", "pciesw[0]", "pcie"), edge("xpu[0:2]", "pciesw[0]", "pcie"),
            edge("nic[0:2]", "pciesw[0]", "pcie"),
        ],
    }  # fmt: skip
    switch = {
        "name": "switch",
        "components": [{"name": "asic", "choice": "cpu", "count": 1}, {"name": "port", "choice": "port", "count": 32}],
        "links": [{"name": "ic"}],
        "edges": [edge("asic", "port", "ic")],
    }
    edges = [
        {
            "ep1": {"instance": f"host[{at}]", "component": f"nic[{nic}]"},
            "ep2": {"instance": "top[0]", "component": f"port[{2 * at + nic}]"},
            "link": "eth",
            "scheme": "one2one",
        }
        for at in range(count)
        for nic in range(2)
    ]
    instances = [{"name": "host", "device": "server", "count": count}, {"name": "top", "device": "switch", "count": 1}]
    return {"devices": [server, switch], "instances": instances, "links": [{"name": "eth"}], "edges": edges}


@pytest.mark.parametrize("name", ["h100-ndr", "a100-hdr", "mi300x-roce"])
def test_a_link_profile_completes_links_without_bandwidths(name: str) -> None:
    known = profile(name)
    with pytest.raises(InputError, match=r"no physical\.bandwidth; add what is missing, or name a link profile"):
        imported(servers(4))
    found = imported(servers(4), known)
    assert (found.device, found.devices_per_host) == (known.device, 2)
    host, network = reduced(found)
    inner, outer = (link(str(each.link)) for each in (known.host, known.tiers[0]) if each is not None)
    assert host.bandwidth == pytest.approx((inner.bandwidth or 0) * inner.efficiency)
    nominal = known.tiers[0].bandwidth or outer.bandwidth or 0
    slot = 0.76 * (published_devices()[str(known.device)].host_bandwidth or 0)
    assert network.bandwidth == pytest.approx(min(nominal * outer.efficiency, slot), rel=0.01)
    assert f"link profile {name} (host)" in told(found)
    assert f"link profile {name} (tiers)" in told(found)
