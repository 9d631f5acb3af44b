from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.catalogue import profile
from nest.errors import InputError
from nest.network.graph import LinkGraph
from networks_tests.field import imported, levels, told

DOMAIN = "accelerator.topology.test/domain"


def block(switch: str | None, nodes: Any, domain: str | None = None) -> dict[str, Any]:
    found = {"switch": switch, "nodes": nodes, "annotations": {DOMAIN: domain} if domain else None}
    return {key: value for key, value in found.items() if value is not None}


def model(units: int, hosts: int, domains: bool) -> dict[str, Any]:
    blocks = [
        block(f"leaf{unit}", [f"n{unit}-[01-{hosts:02}]"], f"nvl{unit}" if domains else None) for unit in range(units)
    ]
    return {"switches": {"core": {"switches": [f"leaf{unit}" for unit in range(units)]}}, "blocks": blocks}


@given(units=st.integers(2, 5), hosts=st.integers(2, 12), domains=st.booleans())
def test_a_model_is_levels_with_its_hosts(units: int, hosts: int, domains: bool) -> None:
    found = imported(model(units, hosts, domains))
    if domains:
        assert levels(found) == [(4 * hosts, 900e9), (units, 50e9)]
    else:
        assert levels(found) == [(8, 450e9), (hosts, 50e9), (units, 50e9)]
    assert found.hosts == tuple(f"n{unit}-{host:02}" for unit in range(units) for host in range(1, hosts + 1))
    assert ("gb200-nvl72-ndr" if domains else "h100-ndr") in told(found)


def test_a_profile_says_what_the_model_does_not() -> None:
    found = imported(model(3, 4, False), profile("a100-hdr"))
    assert (levels(found), found.device) == ([(8, 300e9), (4, 25e9), (3, 25e9)], "a100-sxm-80g")


def test_domains_of_switches_hold_for_the_hosts_below() -> None:
    source = model(2, 3, False)
    source["switches"] |= {f"leaf{unit}": {"annotations": {DOMAIN: f"nvl{unit}"}} for unit in range(2)}
    assert levels(imported(source)) == levels(imported(model(2, 3, True)))


def test_a_host_s_own_domain_counts_before_that_of_its_block() -> None:
    hosts = {f"n{number}": {"attributes": {"nvlink": f"own{number // 2}"}} for number in range(4)}
    source = {"blocks": [block(None, ["n[0-3]"], "shared")], "nodes": hosts}
    assert levels(imported(source))[0] == (4 * 2, 900e9)


NODES = {"1101": {"attributes": {"nvlink": "nvl1"}}, "1102": {"attributes": {"nvlink": "nvl1"}}}
NODES |= {"1201": {"attributes": {"nvlink": "nvl2"}}, "1202": {"attributes": {"nvlink": "nvl2"}}}


def test_older_forms_say_the_same() -> None:
    now = {
        "switches": {"sw3": {"switches": ["sw11", "sw12"]}},
        "blocks": [block("sw11", ["[1101-1102]"], "nvl1"), block("sw12", ["[1201-1202]"], "nvl2")],
    }
    second = {
        "switches": {
            "sw3": {"switches": ["sw11", "sw12"]},
            "sw11": {"nodes": ["[1101-1102]"]},
            "sw12": {"nodes": ["[1201-1202]"]},
        },
        "nodes": NODES,
    }
    first = {
        "switches": [
            {"name": "sw3", "switches": ["sw11", "sw12"]},
            {"name": "sw11", "capacity_blocks": ["cb11"]},
            {"name": "sw12", "capacity_blocks": ["cb12"]},
        ],
        "capacity_blocks": [
            {"name": "cb11", "type": "GB200", "nvlink": "nvl1", "nodes": ["1101", "1102"]},
            {"name": "cb12", "type": "GB200", "nvlink": "nvl2", "nodes": ["[1201-1202]"]},
        ],
    }
    found = [imported(each) for each in (first, second, now)]
    assert found[0].network == found[1].network == found[2].network
    assert found[0].hosts == found[1].hosts == found[2].hosts == ("1101", "1102", "1201", "1202")
    assert [each.device for each in found] == ["gb200"] * 3
    assert "The accelerators are" not in told(found[0])


def instances(rows: list[tuple[str, list[str]]], **labels: str) -> dict[str, Any]:
    return {"instances": [{"id": name, "network_layers": layers, "labels": labels} for name, layers in rows]}


ROWS = [(f"i{index}", [f"leaf{index // 2}", f"spine{index // 4}"]) for index in range(8)]


def test_instances_have_their_nearest_switch_first() -> None:
    slow = imported(instances(ROWS, **{"nvidia.com/gpu.product": "NVIDIA-H200"}))
    assert slow.hosts == tuple(f"i{index}" for index in range(8))
    assert slow.device == "h200-sxm"
    assert "nothing above its 2 top switches" in told(slow)


def test_names_in_different_places_are_different_switches() -> None:
    rows = [(f"i{index}", [f"leaf{index // 2 % 2}", f"spine{index // 4}", "core"]) for index in range(8)]
    unique = [(f"i{index}", [f"leaf{index // 2}", f"spine{index // 4}", "core"]) for index in range(8)]
    found = imported(instances(rows))
    assert found.network == imported(instances(unique)).network
    assert "switches called 'leaf0' in different places" in told(found)


def test_instances_without_layers() -> None:
    assert "no switches" in told(imported(instances([("a", []), ("b", [])])))
    some = imported(instances([("a", ["s"]), ("b", ["s"]), ("c", [])]))
    assert "Left out: c (1 host), for which no switches are listed" in told(some)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            {"provider": {"name": "aws-sim", "params": {"modelFileName": "medium.yaml"}}, "engine": {}},
            "Import that file",
        ),
        ({"provider": {"name": "netq"}, "engine": {"name": "slurm"}, "nodes": []}, "Import topograph's answer"),
        ({"provider": "netq", "engine": None}, "Import topograph's answer"),
        ({"blocks": [block("leaf9", ["a"])], "switches": {"s": {"switches": []}}}, r"blocks\[0\].switch is 'leaf9'"),
        ({"blocks": [block(None, ["a"]), block(None, ["a"])]}, r"blocks\[1\].nodes names 'a', which blocks\[0\]"),
        ({"blocks": [block(None, [])]}, r"blocks\[0\].nodes must be a list of hosts"),
        ({"blocks": [block(None, ["n[1-"])]}, "bracket"),
        (
            {"blocks": [block("a", ["n"])], "switches": {"a": {"switches": ["b"]}, "b": {"switches": ["a"]}}},
            "above itself",
        ),
        ({"blocks": [block("b", ["n"])], "switches": {"a": {"switches": ["b"]}, "c": {"switches": ["b"]}}}, "keep one"),
        ({"blocks": [block("b", ["n"])], "switches": {"a": {"switches": 3}}}, r"switches.a.switches must be a list"),
        ({"switches": {"a": {}}}, "no hosts"),
        (instances([]), "no hosts"),
        ({"instances": [{"network_layers": []}]}, r"instances\[0\].id is missing"),
        (instances([("a", ["s"])], **{"nvidia.com/gpu.product": "NVIDIA-L40"}), "no accelerator called 'NVIDIA-L40'"),
    ],
)
def test_what_cannot_be_is_named(source: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        imported(source)


def test_shared_samples(shared: Path) -> None:
    folder = shared / "topologies" / "topograph"
    assert levels(imported(folder / "models" / "nvl72.yaml")) == [(72, 900e9), (2, 50e9), (2, 50e9)]
    irregular = imported(folder / "models" / "dual-xclr-irregular.yaml").network
    assert isinstance(irregular, LinkGraph)
    assert "node0032.0" in irregular.names
    requests = sorted((folder / "payloads").glob("*.json"))
    assert requests
    for path in requests:
        with pytest.raises(InputError, match="request to topograph"):
            imported(path)


def ec2(kind: str | None, nodes: int = 8, **more: str) -> dict[str, Any]:
    """What AWS lists of instances, out of order: two below each lowest network node, four below each middle one."""
    said = more | ({} if kind is None else {"InstanceType": kind})
    order = [at * 5 % nodes for at in range(nodes)]
    rows = [{"InstanceId": f"i-{at}", "NetworkNodes": ["nn-0", f"nn-m{at // 4}", f"nn-l{at // 2}"]} for at in order]
    return {"Instances": [{**row, **said} for row in rows]}


@pytest.mark.parametrize(
    ("kind", "device", "link"), [("p5.48xlarge", "h100-sxm", "efa"), ("p4d.24xlarge", "a100-sxm-40g", "efa")]
)
def test_instances_of_aws(kind: str, device: str, link: str) -> None:
    found = imported(ec2(kind))
    assert isinstance(found.network, tuple)
    assert ([each.fanout for each in found.network], found.device) == ([8, 2, 2, 2], device)
    assert {each.link for each in found.network[1:]} == {link}
    assert {frozenset(found.hosts[at : at + 2]) for at in range(0, 8, 2)} == {
        frozenset((f"i-{at}", f"i-{at + 1}")) for at in range(0, 8, 2)
    }


def test_instances_of_an_unknown_type_are_not_taken_for_h100() -> None:
    with pytest.raises(InputError, match=r"does not know the accelerators of 'x9\.metal'; name a link profile"):
        imported(ec2("x9.metal"))
    assert imported(ec2("x9.metal"), profile("h200-ndr")).device == "h200-sxm"
    assert (imported(ec2("g6e.48xlarge")).device, imported(ec2(None)).device) == ("l40s", "h100-sxm")


def test_further_pages_of_aws_are_missed() -> None:
    assert "Missing: more instances" in told(imported({**ec2("p5.48xlarge"), "NextToken": "abc"}))
    assert "Missing" not in told(imported(ec2("p5.48xlarge")))


def test_ultraservers_and_several_types_of_aws() -> None:
    rack = ec2("p6e-gb200.36xlarge", 36)["Instances"]
    for place, each in enumerate(rack):
        each |= {"CapacityBlockId": f"cb-{place % 2}", "NetworkNodes": ["top", "leaf"]}
    assert levels(imported({"Instances": rack}))[0] == (72, 900e9)
    both = ec2("p5.48xlarge", 4)["Instances"] + [
        {**each, "InstanceId": f"j-{at}"} for at, each in enumerate(ec2("p4d.24xlarge", 4)["Instances"])
    ]
    assert [each.device for each in imported({"Instances": both}).pools] == ["h100-sxm", "a100-sxm-40g"]
    slow, fast = (
        {each.link for each in pool.levels[1:]} | {each.bandwidth for each in pool.levels[1:]}
        for pool in reversed(imported({"Instances": both}).pools)
    )
    assert (slow, fast) == ({"efa", 6.25e9}, {"efa", 50e9})  # Of their types, and not of a profile for their devices.
    with pytest.raises(InputError, match=r"the accelerators of 't3\.micro'"):
        imported({"Instances": both[:4] + ec2("t3.micro", 2)["Instances"]})
    with pytest.raises(InputError, match="no hosts"):
        imported({"Instances": []})
