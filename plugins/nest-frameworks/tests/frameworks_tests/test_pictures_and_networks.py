"""The graph of a plan, read by Graphviz's own parser where it is installed, and the network for ASTRA-sim."""

import re
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import nest
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.io import read_value
from nest.spec import PlanDocument
from nest_frameworks import astra_sim, dot
from nest_frameworks.dot import MOST_BLOCKS
from tests.deployment.plans import Decisions, decisions, made_up

ONE = Decisions((2, 4), tp=2, cp=1, copies=1, etp=1, ep=1, replicas=2, rank_order="pp-inner", places=(0, 1))


def drawn(plan: PlanDocument) -> str:
    return dot.export(plan)["plan.dot"]


def labels(text: str, pattern: str) -> dict[str, list[str]]:
    """Lines of the labels of what `pattern` matches, by its first group."""
    found = re.findall(pattern + r' \[label="((?:[^"\\]|\\.)*)"', text)
    return {name: label.split("\\n") for name, label in found}


@given(decisions())
def test_every_block_is_drawn_once_in_the_groups_that_hold_it(one: Decisions) -> None:
    text = drawn(made_up(one))
    shown = one.replicas if one.replicas * len(one.places) <= MOST_BLOCKS else 1
    blocks = labels(text, r"\n +(r\d+s\d+)")
    assert len(blocks) == shown * len(one.places)
    depth: list[str] = []
    for line in text.splitlines():
        if (opened := re.match(r"\s*subgraph cluster_([\d_]+) {", line)) is not None:
            depth.append(opened.group(1))
        elif line.strip() == "}" and depth:
            depth.pop()
        elif (block := re.match(r"\s*(r\d+s\d+) \[", line)) is not None:
            (where,) = (told for told in blocks[block.group(1)] if told.startswith("device"))
            ends = [int(each) for each in re.findall(r"\d+", where)]
            first, last = ends[0], ends[-1]
            held = [size for size in capacities(one) if first // size == last // size]
            path = "_".join(str(first // size) for size in reversed(held))
            assert (depth[-1] if depth else "") == path
    assert not depth
    if shown < one.replicas:
        assert f"replica 1 of {one.replicas} is shown" in text


def capacities(one: Decisions) -> list[int]:
    found, size = [], 1
    for fanout in one.fanouts:
        size *= fanout
        found.append(size)
    return found


def evaluated(**fixed: Any) -> PlanDocument:
    problem = {
        "nest": 1,
        "model": {"transformer": {"layers": 8, "hidden": 64, "ffn": 64, "heads": 8, "vocab": 64}},
        "training": {"global_batch": 32, "sequence_length": 16},
        "cluster": {
            "levels": [
                {"name": "node", "fanout": 4, "bandwidth": 4e11, "latency": 3e-6},
                {"name": "rack", "fanout": 2, "bandwidth": 5e10, "latency": 6e-6},
            ],
            "device": "h100-sxm",
        },
        "fixed": fixed,
    }
    return nest.evaluate(problem)


@pytest.mark.longer
def test_boundaries_have_what_crosses_them() -> None:
    """A micro-batch of 1 sample has 16 tokens of 64 numbers of 2 bytes: 2 KiB, in 6 us and 2,048 B / 50 GB/s."""
    plan = evaluated(pp=2, tp=4, rank_order="pp-inner")
    assert [stage.bytes_out for stage in plan.stages] == [2048.0, 0.0]
    edges = labels(drawn(plan), r"(r\d+s\d+ -> r\d+s\d+)")
    assert edges == {"r0s0 -> r0s1": ["rack", "2 KiB", "6.04 us"]}
    assert nest.check(plan).ok
    wrong = evolve(plan, stages=(evolve(plan.stages[0], bytes_out=1.0), plan.stages[1]))
    assert not nest.check(wrong).ok


@pytest.mark.longer
def test_chunks_send_back_to_the_first_stage() -> None:
    plan = evaluated(pp=2, schedule="interleaved", chunks=2)
    text = drawn(plan)
    assert "r0s1 -> r0s0" in text
    assert labels(text, r"\n +(r0s0)")["r0s0"][1] == "5 layers: embedding to layers.1, layers.4 to layers.5"


def test_chunks_go_down_the_stages_and_up_again() -> None:
    """Bytes are told where all that a stage sends goes to one other: the last one sends one chunk's, not the turn's."""
    edges = labels(drawn(evaluated(pp=3, tp=2, schedule="zb-v", rank_order="pp-inner")), r"(r\d+s\d+ -> r\d+s\d+)")
    assert edges == {
        "r0s0 -> r0s1": ["node", "2 KiB", "3.01 us"],
        "r0s1 -> r0s2": ["rack"],
        "r0s2 -> r0s1": ["rack", "2 KiB", "6.04 us"],
        "r0s1 -> r0s0": ["node"],
    }


@given(st.text(max_size=30))
def test_names_stay_inside_their_labels(name: str) -> None:
    plan = made_up(ONE)
    stage = evolve(plan.stages[0], layers=(name,))
    text = drawn(evolve(plan, stages=(stage, *plan.stages[1:])))
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
    assert '"' not in outside
    assert re.fullmatch(r"[\w\s\[\]{}=,;>-]*", outside)


def network(plan: PlanDocument) -> dict[str, list[Any]]:
    """The file as its readers see it: lists of words and numbers."""
    text = astra_sim.export(plan)["astra_sim_network.yml"]
    rows = [line.split(":", 1) for line in text.splitlines() if not line.startswith("#")]
    return {key: read_value(value.split("#")[0].strip()) for key, value in rows}


@given(decisions())
def test_levels_are_switches_the_fastest_first(one: Decisions) -> None:
    if one.devices == 1:
        with pytest.raises(InputError, match="one device, which has no network"):
            network(made_up(one))
        return
    found = network(made_up(one))
    sizes = [fanout for fanout in one.fanouts if fanout > 1]
    assert found["npus_count"] == sizes
    assert found["topology"] == ["Switch"] * len(sizes)
    assert found["bandwidth"] == [1e9 / 2**30] * len(sizes)


def test_bandwidths_and_latencies_are_in_its_units() -> None:
    """Two links of a switch make the latency from end to end."""
    found = network(evaluated(tp=4))
    assert found == {
        "topology": ["Switch", "Switch"],
        "npus_count": [4, 2],
        "bandwidth": [400e9 / 2**30, 50e9 / 2**30],
        "latency": [1500.0, 3000.0],
    }


def test_a_torus_has_rings() -> None:
    plan = made_up(ONE)
    torus = {"torus": {"shape": [2, 4], "bandwidth": "45 GB/s", "latency": "0.5 us"}}
    found = network(evolve(plan, problem={**plan.problem, "cluster": {"topology": torus}}))
    assert found == {
        "topology": ["Ring", "Ring"],
        "npus_count": [4, 2],
        "bandwidth": [45e9 / 2**30] * 2,
        "latency": [500.0, 500.0],
    }


@pytest.mark.longer
def test_a_network_survives_the_round_trip() -> None:
    plan = evaluated(tp=4)
    source = network(plan)
    importers = [each for each in registry().topology_importers().values() if each.accepts(source)]
    if not importers:
        pytest.skip("no importer of ASTRA-sim's networks is registered")
    again = nest.evaluate({**plan.problem, "cluster": {"device": "h100-sxm", "topology": source}})
    assert again.batch_time == pytest.approx(plan.batch_time, rel=1e-12)
    assert network(again) == source


def test_a_plan_that_is_infeasible_has_nothing_to_show() -> None:
    none = evolve(made_up(ONE), status="infeasible", stages=())
    for exporter in (dot, astra_sim):
        with pytest.raises(InputError, match="nothing to export"):
            exporter.export(none)
