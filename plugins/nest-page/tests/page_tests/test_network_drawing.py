"""Networks as drawn: every device and every link once, the busiest link last and with an edge, names as text."""

import re
from collections import Counter
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from nest.network import LinkGraph
from nest_page.cluster import Place
from nest_page.network import MOST_DEVICES, Network, drawn_network
from nest_page.network_drawing import BUSY, Link, Node, busiest, link_keys, link_style, link_words, network_body
from nest_page.network_layout import Layout
from nest_page.svg import WIDTHS
from page_tests.browser.plans import HOSTILE
from page_tests.networks import rails, routers, served, torus

GRAPHS = {
    "cube": (torus(4, 4, 4), (4, 4, 4)),
    "ring": (torus(24), (24,)),
    "four": (torus(2, 2, 2, 2), (2, 2, 2, 2)),
    "rails": (rails(4, 4), ()),
    "routers": (routers(5, 4), ()),
}


def _loads(graph: LinkGraph) -> list[float]:
    """A load of each class, and none, in turn; the busiest link is the fourth."""
    shares = [0.0, *BUSY, 0.7]
    return [0.9 if link == 7 else shares[link // 2 % len(shares)] for link in range(2 * len(graph.ends))]


def _drawn(
    graph: LinkGraph,
    places: dict[str, Place | None],
    shape: tuple[int, ...] = (),
    loads: list[float] | None = None,
    room: float = 1120,
) -> tuple[Network, Markup]:
    network = drawn_network(graph, places, shape, loads)
    assert network is not None
    return network, network_body(network.nodes, network.links, network.layout(room))


def _elements(body: Markup) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(f"<svg>{body}</svg>").iter())


def _titled(body: Markup, pattern: str) -> list[ElementTree.Element]:
    return [each for each in _elements(body) if re.search(pattern, each.findtext("title") or "")]


@pytest.mark.longer
@pytest.mark.parametrize("room", WIDTHS)
@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_every_node_and_every_link_is_drawn_once(name: str, loaded: bool, room: float) -> None:
    graph, shape = GRAPHS[name]
    places = served(graph, 2, 2, 3)
    _, body = _drawn(graph, places, shape, _loads(graph) if loaded else None, room)
    titles = Counter(each.text for each in _elements(body) if each.tag == "title")
    assert set(titles.values()) == {1}
    for node in graph.names:
        words = re.escape(node)
        assert len(_titled(body, rf"^(?:switch )?{words}(?:$|: (?:not used|stage))")) == 1, node
    for one, two in graph.ends.tolist():
        ends = {graph.names[one], graph.names[two]}
        drawn = [text for text in titles if text and set(text.split(": ")[0].split(" – ")) == ends]
        assert len(drawn) == 1, ends
    cells = [each.text for each in _elements(body) if each.tag == "text" and "*" not in (each.text or "")]
    assert len(cells) == sum(place is not None for place in places.values())


def test_devices_say_what_they_serve() -> None:
    graph = rails(2, 4)
    _, body = _drawn(graph, served(graph, 2, 2, 1))
    assert [each.get("class") for each in _titled(body, "stage 1 of replica 1")] == ["stage-0"] * 2
    assert [each.get("class") for each in _titled(body, "stage 2 of replica 1")] == ["stage-1"] * 2
    assert [each.get("class") for each in _titled(body, "not used")] == ["panel edged"] * 4
    assert "line strong" not in body


def test_the_first_of_several_replicas_has_an_outline_and_cells_their_replicas() -> None:
    graph = torus(4, 4)
    _, body = _drawn(graph, served(graph, 2, 2, 4), (4, 4))
    (outline,) = [each for each in _elements(body) if each.get("class") == "line strong"]
    assert outline.get("d", "").count("M") == 4
    cells = [each.text for each in _elements(body) if each.tag == "text"]
    assert cells[:4] == ["1.1", "1.1", "1.2", "1.2"]
    assert cells[-1] == "4.2"


def test_the_busiest_link_has_an_edge_and_lies_on_top() -> None:
    graph = torus(4, 4)
    network, body = _drawn(graph, served(graph, 2, 2, 4), (4, 4), _loads(graph))
    assert busiest(network.links) == 3
    paths = [each for each in _elements(body) if each.get("class", "").startswith("link")]
    (edge,) = [each for each in paths if each.get("class") == "link edge-5"]
    assert paths[-1].get("d") == edge.get("d")
    assert paths[-1].findtext("title") == link_words(network.nodes, network.links[3])


@pytest.mark.parametrize(
    ("loads", "style"),
    [
        ((0.0, 0.0), "link unused-link"),
        ((0.0, 0.004), "link busy-link-1"),
        ((0.03, 0.0), "link busy-link-2"),
        ((0.06, 0.06), "link busy-link-3"),
        ((0.21, 0.0), "link busy-link-4"),
        ((0.0, 1.0), "link busy-link-5"),
    ],
)
def test_the_busier_direction_counts(loads: tuple[float, float], style: str) -> None:
    assert link_style(Link((0, 1), 1e9, loads), 1e9) == style


def test_keys_are_the_classes_drawn() -> None:
    graph = rails(4, 4, shared=False)
    for loads in (None, _loads(graph)):
        network, body = _drawn(graph, served(graph, 2, 2, 3), (), loads)
        drawn = {each.get("class") for each in _elements(body) if each.get("class", "").startswith("link")}
        keys = link_keys(network.links)
        assert {key.style for key in keys} == drawn - {"link edge-5"}
        assert len({key.label for key in keys}) == len(keys)
        assert ("link free-link" in drawn) is (loads is not None)


def test_names_are_text() -> None:
    nodes = [Node(HOSTILE, True, Place(0, 0)), Node(f"{HOSTILE}'", False)]
    body = network_body(nodes, [Link((0, 1), 1e9, (0.5, 0.1))], Layout(((10.0, 10.0), (40.0, 10.0)), 12, 50, 20))
    assert {each.tag for each in _elements(body)} == {"svg", "path", "circle", "g", "text", "title"}
    assert len(_titled(body, re.escape(HOSTILE))) == 3


def test_a_network_too_large_is_not_drawn() -> None:
    graph = torus(MOST_DEVICES // 2, 2)
    assert drawn_network(graph, served(graph, 2, 2, 3), (MOST_DEVICES // 2, 2)) is not None
    larger = torus(MOST_DEVICES // 2 + 1, 2)
    assert drawn_network(larger, served(larger, 2, 2, 3), (MOST_DEVICES // 2 + 1, 2)) is None
    dense = routers(64, 1)
    assert drawn_network(dense, served(dense, 2, 2, 3)) is None
