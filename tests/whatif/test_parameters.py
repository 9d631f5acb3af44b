"""What can be varied in a problem, and that nothing but it is."""

from typing import Any

import pytest
from attrs import evolve

from nest.errors import InputError
from nest.formulate.cluster import build_cluster
from nest.formulate.problem import self_contained
from nest.hooks.registry import registry
from nest.instance import Cluster
from nest.io import structure
from nest.spec import Problem
from nest.whatif.parameters import Parameter, parameters

MODEL: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 6, "hidden": 512, "ffn": 1024, "heads": 8, "vocab": 1024}},
    "training": {"global_batch": 16, "sequence_length": 128, "micro_batch": [1, 4]},
}

GRAPH = {
    "nodes": [*({"id": f"d{index}"} for index in range(4)), *({"id": name, "kind": "switch"} for name in ("s", "t"))],
    "edges": [
        *({"source": f"d{index}", "target": "st"[index // 2], "bandwidth": "50 GB/s"} for index in range(4)),
        {"source": "s", "target": "t", "bandwidth": "20 GB/s"},
    ],
}

NETWORKS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "levels": (
        {
            "levels": [
                {"name": "node", "fanout": 4, "bandwidth": 450e9, "link": "nvlink"},
                {"fanout": 1, "bandwidth": 1e9},
                {"fanout": 2, "link": "infiniband-ndr"},
            ]
        },
        ["node (nvlink4)", "level 2"],
    ),
    "name": ({"name": "dgx-h100-superpod-64"}, ["node", "unit"]),
    "catalogue as topology": ({"topology": "dgx-h100-superpod-64"}, ["node", "unit"]),
    "torus": ({"topology": {"torus": {"shape": [4, 4], "bandwidth": 5e10}}}, ["links"]),
    "mesh": ({"topology": {"mesh": {"shape": [4, 4], "bandwidth": 5e10}}}, ["links"]),
    "fat-tree": ({"topology": {"fat-tree": {"k": 4, "bandwidth": 5e10}}}, ["links"]),
    "dragonfly": (
        {"topology": {"dragonfly": {"p": 2, "a": 2, "h": 1, "bandwidth": 5e10, "global_bandwidth": 1e10}}},
        ["links", "global links"],
    ),
    "rail-optimised": (
        {"topology": {"rail-optimised": {"nodes": 2, "gpus": 4, "bandwidth": 5e10, "nvlink_bandwidth": 4e11}}},
        ["nvlink links", "links"],
    ),
    "graph": ({"topology": GRAPH}, ["links of 20 GB/s", "links of 50 GB/s"]),
    "matrix": (
        {"topology": {"matrix": {"bandwidth": [[None, 2e10, 1e10], [2e10, None, 1e10], [1e10, 1e10, None]]}}},
        ["links of 10 GB/s", "links of 20 GB/s"],
    ),
    "measured matrix": (
        {
            "topology": {
                "matrix": {
                    "bandwidth": [
                        [None if one == two else 1e9 * (10 + one + two + one * two) for two in range(8)]
                        for one in range(8)
                    ]
                }
            }
        },
        ["the slowest link, all in proportion"],
    ),
}


def problem_on(cluster: dict[str, Any], **other: Any) -> Problem:
    written = {**MODEL, "cluster": {"device": "h100-sxm", **cluster}, **other}
    return self_contained(structure(written, Problem), None, registry())


def built(problem: Problem) -> Cluster:
    return build_cluster(problem.cluster, registry())[0]


def called(problem: Problem, name: str) -> Parameter:
    return next(each for each in parameters(problem, registry()) if each.name == name)


@pytest.mark.parametrize("network", NETWORKS)
def test_every_bandwidth_is_listed_and_its_own_value_changes_nothing(network: str) -> None:
    cluster, names = NETWORKS[network]
    problem = problem_on(cluster)
    found = parameters(problem, registry())
    assert [each.name.removeprefix("bandwidth of ") for each in found if each.unit == "bytes/s"] == names
    for each in found:
        same = each.changed(problem, each.value)
        assert built(same) == built(problem)
        assert called(same, each.name) == each


@pytest.mark.parametrize("network", NETWORKS)
def test_a_bandwidth_changed_is_what_the_network_has(network: str) -> None:
    problem = problem_on(NETWORKS[network][0])
    for each in parameters(problem, registry()):
        if each.unit != "bytes/s":
            continue
        slower = each.changed(problem, each.value / 7)
        values = [other.value for other in parameters(slower, registry()) if other.unit == "bytes/s"]
        assert values.count(pytest.approx(each.value / 7)) == 1
        if "links of" not in each.name:  # Classes of links are told apart by the bandwidth that they have at first.
            again = [level.bandwidth for level in built(each.changed(slower, each.value)).levels]
            assert again == [pytest.approx(level.bandwidth) for level in built(problem).levels]


@pytest.mark.parametrize("link", ["nvlink", "nvlink4", "ethernet", None])
def test_a_level_written_by_hand_with_what_the_name_says_is_the_changed_one(link: str | None) -> None:
    level = {"name": "node", "fanout": 4, "bandwidth": 450e9, **({} if link is None else {"link": link})}
    problem = problem_on({"levels": [level]})
    parameter = parameters(problem, registry())[0]
    _, _, member = parameter.name.removesuffix(")").partition(" (")
    assert bool(member) == (link == "nvlink")
    by_hand = problem_on({"levels": [{**level, "bandwidth": 225e9, **({"link": member} if member else {})}]})
    assert built(parameter.changed(problem, 225e9)) == built(by_hand)


def test_levels_of_the_same_name_are_told_apart() -> None:
    level = {"name": "hop", "fanout": 2, "bandwidth": 1e10}
    problem = problem_on({"levels": [level, level]})
    assert [each.name for each in parameters(problem, registry())][:2] == [
        "bandwidth of hop (level 0)",
        "bandwidth of hop (level 1)",
    ]


def test_memory_is_that_of_the_device_and_above_the_reserve() -> None:
    problem = problem_on({"name": "nest-h100-spine-leaf", "device": None, "reserve": "4 GB"})
    memory = called(problem, "memory")
    assert memory.value == 96636764160
    assert built(memory.changed(problem, 5e10)).device_memory == 5e10
    with pytest.raises(InputError, match="memory must be a finite number above 4e"):
        memory.changed(problem, 4e9)


def test_peak_compute_is_that_of_the_precision_and_scales_all() -> None:
    problem = problem_on({"name": "dgx-h100-superpod-64"}, training={**MODEL["training"], "precision": "fp8"})
    peak = called(problem, "peak compute")
    _, before = build_cluster(problem.cluster, registry())
    _, after = build_cluster(peak.changed(problem, 3 * peak.value).cluster, registry())
    assert before is not None
    assert after is not None
    assert peak.value == before.peak.fp8
    assert after.peak.fp32 == pytest.approx(3 * (before.peak.fp32 or 0))
    assert after.peak.nvfp4 is None
    assert evolve(after, peak=before.peak) == before


def test_devices_are_groups_of_the_outermost_level() -> None:
    levels = [{"fanout": 4, "bandwidth": 1e11}, {"fanout": 3, "bandwidth": 1e10}]
    problem = problem_on({"levels": levels, "hosts": ["a", "b", "c"]})
    devices = called(problem, "devices")
    assert (devices.value, devices.multiple_of) == (12, 4)
    changed = devices.changed(problem, 20)
    assert built(changed).size == 20
    assert changed.cluster.devices_per_host == 4
    assert not devices.allows(18)
    with pytest.raises(InputError, match="devices must be a multiple of 4 above 0, is 18"):
        devices.changed(problem, 18)
    assert "devices" not in {each.name for each in parameters(problem_on(NETWORKS["torus"][0]), registry())}


def test_a_smaller_batch_goes_without_larger_micro_batches() -> None:
    problem = problem_on(NETWORKS["levels"][0])
    batch = called(problem, "global batch")
    changed = batch.changed(problem, 2)
    assert (changed.training.global_batch, changed.training.micro_batch) == (2, (1,))
    assert not batch.allows(2.5)
    only = evolve(problem, training=evolve(problem.training, micro_batch=(4,)))
    with pytest.raises(InputError, match="above the global batch of 2"):
        batch.changed(only, 2)


def test_a_profile_has_no_peak_compute() -> None:
    one = {
        "name": "one",
        "width": 1,
        "samples": 1,
        "forward": [1.0],
        "backward": [1.0],
        "state": {},
        "recompute": {"none": {"extra": [0.0], "first": [1.0], "more": [1.0], "peak": [0.0]}},
        "edge_bytes": [],
    }
    wide = {**one, "name": "wide", "samples": 4}
    written = {
        "nest": 1,
        "profile": {"layers": ["only"], "edges": [], "candidates": [one, wide]},
        "training": {"global_batch": 8},
        "cluster": {"levels": [{"fanout": 2, "bandwidth": 1e9}], "memory": 1e9},
    }
    problem = self_contained(structure(written, Problem), None, registry())
    assert [each.name for each in parameters(problem, registry())] == [
        "bandwidth of level 0",
        "memory",
        "devices",
        "global batch",
    ]
    changed = called(problem, "global batch").changed(problem, 2)
    assert not isinstance(changed.profile, str)
    assert changed.profile is not None
    assert [each.name for each in changed.profile.candidates] == ["one"]
