"""The network that a plan was placed on: devices with what they serve, switches, links and their load, or pairs."""

from collections.abc import Mapping, Sequence

from attrs import frozen

from nest.instance.pairs import Pairs
from nest.network import LinkGraph
from nest.public.planning import data_parallel_groups, link_loads, loaded, on_devices
from nest.public.text import counted
from nest.spec import MeshSpec, TorusSpec
from nest.units import format_decimal, percent
from nest_page.cluster import TITLE, Devices, Place, devices, of_devices, stage_devices
from nest_page.network_drawing import Link, Node, alone, busiest, link_keys, network_body
from nest_page.network_layout import Layout, grid_layout, spring_layout, tier_layout
from nest_page.pair_map import PairMap, group_table, map_body, map_keys, map_size, pair_map
from nest_page.records import Cell, Drawing, Figure, Subject, Table
from nest_page.svg import WIDTHS

MOST_DEVICES, MOST_NODES, MOST_LINKS = 128, 384, 1024
"""Devices, devices and switches, and links of a network that is drawn link by link; more cannot be told apart."""

Loads = Sequence[float]
"""Share of the time for which a plan keeps each directed link busy; those of link `e` of a graph are `2 * e` from its
first end to its second and `2 * e + 1` back; a measured pair has the number `from * devices + to`."""


@frozen
class Network:
    """A network, drawn.

    Attributes:
        nodes: devices and switches; of a grid in the order of its points, of others devices first.
        links: between them.
        shape: devices along each dimension of a grid; empty: it is none.
    """

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    shape: tuple[int, ...] = ()

    def layout(self, room: float) -> Layout:
        """Positions of nodes in a drawing as wide as `room`, px."""
        ends = [link.ends for link in self.links]
        laid = grid_layout(self.shape, ends, room) if self.shape else None
        laid = laid or tier_layout([node.is_device for node in self.nodes], ends, room)
        return laid or spring_layout(len(self.nodes), ends, room)


def drawn_network(
    graph: LinkGraph, served: Mapping[str, Place | None], shape: tuple[int, ...] = (), loads: Loads | None = None
) -> Network | None:
    """The network of a plan; None: it is too large to be drawn link by link.

    Args:
        graph: devices, switches and links.
        served: what each device serves, by its name, neighbours near each other.
        shape: devices along each dimension of a grid; empty: it is none.
        loads: of its links; None: not known.
    """
    if len(graph.devices) > MOST_DEVICES or len(graph.names) > MOST_NODES or len(graph.ends) > MOST_LINKS:
        return None
    is_device = dict(zip(graph.names, graph.is_device.tolist(), strict=True))
    names = graph.names if shape else (*served, *(name for name in graph.names if not is_device[name]))
    index = {name: place for place, name in enumerate(names)}
    ends = [(index[graph.names[one]], index[graph.names[two]]) for one, two in graph.ends.tolist()]
    shared = graph.shared | ~graph.trunks
    links = tuple(
        Link(ends[each], float(bandwidth), None if loads is None else _both(loads, each), bool(shared[each]))
        for each, bandwidth in enumerate(graph.bandwidth)
    )
    nodes = tuple(Node(name, is_device[name], served.get(name)) for name in names)
    return Network(nodes, links, shape)


def _both(loads: Loads, link: int) -> tuple[float, float]:
    """The loads of both directions of a link."""
    return float(loads[2 * link]), float(loads[2 * link + 1])


def network_figure(subject: Subject) -> Figure | None:
    """The network that a plan was placed on: its devices and links, or, where pairs were measured, a map of these.

    None where levels say it all, or the network is too large.
    """
    placed, source = devices(subject), subject.problem.cluster.topology
    if not placed.names or source is None:
        return None
    served = dict(zip(placed.names, placed.places, strict=True))
    written, loads = loaded(source, subject.known, None), link_shares(subject)
    if isinstance(written, LinkGraph):
        shape = source.shape if isinstance(source, TorusSpec | MeshSpec) else ()
        network = drawn_network(written, served, shape, loads)
        return None if network is None else _link_figure(subject, placed, network)
    drawn_map = pair_map(written, served) if isinstance(written, Pairs) else None
    return None if drawn_map is None else _map_figure(subject, placed, drawn_map, loads)


def link_shares(subject: Subject) -> Loads | None:
    """Busy time of each directed link in a micro-batch, as a share of the slowest stage's time.

    Numbered as in `nest.network.routes`. None: the plan was priced on levels, or takes no time.
    """
    slowest = max(stage.time for stage in subject.priced.stages)
    if subject.instance.network is None or slowest == 0:
        return None
    instance, solution = on_devices(subject.instance, subject.solution)
    carried = link_loads(instance, solution, data_parallel_groups(instance, solution))
    shares: list[float] = (carried.seconds / slowest).tolist()
    return shares


def _map_figure(subject: Subject, placed: Devices, drawn_map: PairMap, loads: Loads | None) -> Figure:
    sentences = [
        "Each square is a pair of devices, its colour the stronger the more bandwidth was measured between the two.",
        "Along both sides stand the device groups of the plan, replica after replica, in the order of their stages.",
        "Outlines on the diagonal are device groups, with the numbers of their stages above where there is room, "
        "behind those of their replicas if there are several.",
    ]
    idle = sum(place is None for place in placed.places)
    if idle:
        sentences.append(f"The last {counted(idle, 'device')} are not used.")
    if loads is not None and max(loads) > 0:
        link = max(range(len(loads)), key=loads.__getitem__)
        one, two = (placed.names[each] for each in divmod(link, len(placed.names)))
        sentences.append(_busy_words("The busiest pair goes", one, two, loads[link]))
    caption, size = " ".join(sentences), len(placed.places)
    title = f"The bandwidth between every two of the {size:,} devices of the network"

    def drawn(room: float) -> tuple[Drawing, ...]:
        _, width, height = map_size(drawn_map, room)
        return (Drawing(width, height, map_body(drawn_map, room), title, caption),)

    tables = (group_table(drawn_map),)
    sizes, keys = tuple(map(drawn, WIDTHS)), map_keys(drawn_map)
    return Figure("cluster", TITLE, caption, sizes, stage_devices(subject, placed), keys, tables)


def _link_figure(subject: Subject, placed: Devices, network: Network) -> Figure:
    caption = _caption(subject, placed, network)
    title = f"The {len(placed.places):,} devices of the network by stage, and the {len(network.links):,} links"

    def drawn(room: float) -> tuple[Drawing, ...]:
        layout = network.layout(room)
        body = network_body(network.nodes, network.links, layout)
        return (Drawing(layout.width, layout.height, body, title, caption),)

    sizes, keys = tuple(map(drawn, WIDTHS)), link_keys(network.links)
    return Figure("cluster", TITLE, caption, sizes, stage_devices(subject, placed), keys, (_link_table(network),))


def _caption(subject: Subject, placed: Devices, network: Network) -> str:
    """Describe the drawing and its busiest link."""
    alike = alone(network.nodes)
    cells = f"Each cell is a device, coloured and numbered by its {'replica' if alike else 'pipeline stage'}"
    if not alike and (subject.plan.data_parallel or 1) > 1:
        cells += "; where there is room, the number of its replica stands before the stage's number"
    switches = "" if all(node.is_device for node in network.nodes) else "Circles are switches."
    return " ".join(filter(None, [f"{cells}.", *of_devices(subject, placed, alike), switches, *_of_links(network)]))


def _of_links(network: Network) -> list[str]:
    """Explain the lines."""
    sentences = []
    links, widths = network.links, sorted({link.bandwidth for link in network.links})
    index = busiest(links)
    if any(link.loads is not None for link in links):
        sentences.append(
            "Lines are links, the wider the longer their busier direction is busy with what a micro-batch sends; "
            "what is sent once per batch does not count."
        )
        if index is not None:
            sentences.append(_busiest(network, index))
    else:
        ends = " to ".join(format_decimal(width, "B/s") for width in (widths[0], widths[-1])[: len(widths)])
        wider = ", the wider the more bandwidth" if link_keys(links) else ""
        sentences.append(f"Lines are links of {ends} in each direction{wider}.")
    if network.shape:
        sentences.extend(_of_stubs(network))
    return sentences


def _busiest(network: Network, index: int) -> str:
    """The sentence on the busiest link."""
    link = network.links[index]
    names = [network.nodes[end].name for end in link.ends]
    forth, back = link.loads or (0.0, 0.0)
    one, two = names if forth >= back else reversed(names)
    return _busy_words("The busiest link, outlined, goes", one, two, link.busy)


def _busy_words(which: str, one: str, two: str, share: float) -> str:
    return f"{which} from {one} to {two} and is busy {percent(share)} of the slowest stage's time."


def _of_stubs(network: Network) -> list[str]:
    """Explain the short lines of a grid."""
    layout = network.layout(WIDTHS[0])
    diagonal = [all(x and y for x, y in stubs) for stubs in layout.stubs.values()]
    sentences = []
    if not all(diagonal):
        sentences.append("Short lines at the ends of a row or column are the link between these ends.")
    if any(diagonal):
        sentences.append("Short diagonal lines lead to the same place in a neighbouring slice.")
    return sentences


def _link_table(network: Network) -> Table:
    """Links, the busiest first, with the share of the time for which each direction is busy."""
    known = any(link.loads is not None for link in network.links)
    rows = []
    for link in sorted(network.links, key=lambda link: -link.busy):
        one, two = (network.nodes[end].name for end in link.ends)
        cells = [Cell(f"{one} – {two}"), Cell(format_decimal(link.bandwidth, "B/s"), link.bandwidth)]
        rows.append((*cells, *(Cell.share(load) for load in link.loads or ())))
    header = ("link", "bandwidth", *(("busy from the first end", "busy from the second end") if known else ()))
    return Table("Links of the network", header, tuple(rows))
