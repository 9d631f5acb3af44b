"""The page of a plan on a network that is no hierarchy: its own devices and links, or the pairs that were measured."""

import re
from collections import Counter
from functools import cache
from typing import Any

import pytest

from nest import api
from nest.formulate.topology import loaded
from nest.hooks.registry import registry
from nest.network import LinkGraph
from nest.network.linked import PathNetwork
from nest.spec import PlanDocument
from nest.units import percent
from nest_page.network import network_figure
from nest_page.page_of_plan import subject
from nest_page.records import Figure
from page_tests.plans import quick
from page_tests.reading import Page
from tests.measured import profile

TORUS = {"torus": {"shape": [2, 4], "wrap": True, "bandwidth": "45 GB/s", "latency": "0.5 us"}}
NEAR, FAR = 40e9, 5e9
MATRIX = {
    "matrix": {
        "bandwidth": [[NEAR if abs(one - two) in (1, 7) else FAR + one + two for two in range(8)] for one in range(8)],
        "latency": 1e-6,
    }
}
GRAPH = {
    "nodes": [*({"id": f"<b>{each}</b>"} for each in range(8)), {"id": "a & b", "kind": "switch"}],
    "edges": [
        *({"source": f"<b>{each}</b>", "target": "a & b", "bandwidth": 25e9} for each in range(8)),
        *({"source": f"<b>{one}</b>", "target": f"<b>{(one + 3) % 8}</b>", "bandwidth": 50e9} for one in range(8)),
    ],
}
NETWORKS: dict[str, dict[str, Any]] = {"torus": TORUS, "matrix": MATRIX, "graph": GRAPH}


def problem(topology: dict[str, Any]) -> dict[str, Any]:
    """Four layers of eight devices on a network, in two replicas of two stages of two devices."""
    state = {key: [1e9] * 4 for key in ("weights", "gradients", "optimizer")}
    return {
        "nest": 1,
        "training": {"global_batch": 8},
        "constraints": ["replicas == 2", "pp == 2"],
        "cluster": {"memory": 1e12, "topology": topology},
        "profile": profile([1.0] * 4, [1.0] * 4, state=state, sent=1e9, width=2),
    }


@cache
def plan(name: str) -> PlanDocument:
    """The best plan on one of `NETWORKS`."""
    return api.solve(problem(NETWORKS[name]))


def figure(name: str) -> Figure:
    """Its figure."""
    found = network_figure(subject(plan(name), registry()))
    assert found is not None
    return found


@pytest.mark.longer
@pytest.mark.parametrize("name", ["torus", "graph"])
def test_the_table_has_every_link(name: str) -> None:
    table = Page(quick(plan(name))).table("Links of the network")
    assert len(table.rows) == {"torus": 12, "graph": 16}[name]
    assert set(table.values("bandwidth")) == {"torus": {45e9}, "graph": {25e9, 50e9}}[name]


def test_devices_are_drawn_where_the_plan_has_them() -> None:
    found = plan("torus")
    assert found.placement is not None
    body = str(figure("torus").sizes[0][0].body)
    for replica, blocks in enumerate(found.placement.replicas):
        for stage, block in enumerate(blocks):
            for device in block:
                assert f"<title>{device}: stage {stage + 1} of replica {replica + 1}</title>" in body
    assert len(re.findall("<title>[^<]*: stage", body)) == 8


@pytest.mark.longer
def test_links_carry_what_the_stages_send_hop_by_hop() -> None:
    found = subject(plan("torus"), registry())
    assert found.plan.placement is not None
    hops = 0
    for front, back in (blocks for blocks in found.plan.placement.replicas):
        for sender, receiver in zip(front, back, strict=True):
            steps = [abs(int(one) - int(two)) for one, two in zip(sender.split(","), receiver.split(","), strict=True)]
            hops += sum(min(step, length - step) for step, length in zip(steps, (2, 4), strict=True))
    slowest = max(stage.time for stage in found.plan.stages)
    sent = 2 * 1e9 * hops  # Activations, and gradients back.
    table = Page(quick(plan("torus"))).table("Links of the network")
    shares = [*table.values("busy from the first end"), *table.values("busy from the second end")]
    assert sum(shares) * 45e9 * slowest == pytest.approx(sent)
    assert max(shares) <= 1


@pytest.mark.parametrize("name", ["torus", "graph"])
def test_each_direction_of_a_link_has_its_own_load(name: str) -> None:
    found = subject(plan(name), registry())
    assert found.instance.network is not None
    assert found.solution.placement is not None
    model = found.instance.network.model
    assert isinstance(model, PathNetwork)
    assert found.problem.cluster.topology is not None
    graph = loaded(found.problem.cluster.topology, registry(), None)
    assert isinstance(graph, LinkGraph)
    sent = Counter[tuple[str, str]]()
    for front, back in found.solution.placement:
        for sender, receiver in zip(front, back, strict=True):
            for link in (*model.path(sender, receiver).tolist(), *model.path(receiver, sender).tolist()):
                sent[graph.names[model.routes.tails[link]], graph.names[model.routes.heads[link]]] += 1
    slowest = max(stage.time for stage in found.plan.stages)
    for link, bandwidth, *shares in figure(name).more[0].rows:
        one, two = link.text.split(" – ")
        for ends, share in zip(((one, two), (two, one)), shares, strict=True):
            assert share.value == pytest.approx(sent[ends] * 1e9 / (bandwidth.value or 0.0) / slowest)


@pytest.mark.parametrize("name", ["torus", "graph"])
def test_the_caption_names_the_busiest_link(name: str) -> None:
    caption, table = figure(name).caption, figure(name).more[0]
    told = re.search(r"The busiest link, outlined, goes from (.*) to (.*) and is busy ([\d.]+ %)", caption)
    assert told is not None
    rows = [[cell.text for cell in row] for row in table.rows]
    ways = [(*link.split(" – "), forth) for link, _, forth, _ in rows]
    ways += [(*reversed(link.split(" – ")), back) for link, _, _, back in rows]
    assert told.groups() in ways
    shares = [row[place].value for row in table.rows for place in (2, 3)]
    assert told[3] == percent(max(share for share in shares if share is not None))


def test_the_caption_names_the_busiest_pair() -> None:
    assert re.search(r"The busiest pair goes from \d to \d and is busy [\d.]+ %", figure("matrix").caption)


def test_a_map_has_its_device_groups_as_a_table() -> None:
    table = Page(quick(plan("matrix"))).table("Bandwidth in and between device groups")
    assert [row[0].text for row in table.rows] == [
        f"stage {stage} of replica {replica}" for replica in (1, 2) for stage in (1, 2)
    ]
    assert min(table.values("slowest inside")) >= FAR
