"""A network drawn as devices, switches and links: what each device serves, and how wide or how busy each link is."""

from collections.abc import Iterable, Sequence

from attrs import frozen
from markupsafe import Markup

from nest.units import format_decimal, percent
from nest_page.cluster import Place
from nest_page.network_layout import Layout, Point
from nest_page.palette import stage_style
from nest_page.records import Key
from nest_page.svg import boxes, element, fits, joined, number, text


@frozen
class Node:
    """A device or a switch.

    Attributes:
        name: of the node.
        is_device: whether it is a device.
        place: what a device serves; None: nothing, or it is a switch.
    """

    name: str
    is_device: bool
    place: Place | None = None


@frozen
class Link:
    """A link.

    Attributes:
        ends: the two nodes, by their numbers.
        bandwidth: bytes per second and direction.
        loads: shares of the time, 0 to 1, for which it is busy from the first end to the second, and back; None: not
            known.
        is_shared: whether what crosses it at one time shares its bandwidth; if not, no load fills it.
    """

    ends: tuple[int, int]
    bandwidth: float
    loads: tuple[float, float] | None = None
    is_shared: bool = True

    @property
    def busy(self) -> float:
        """The share of its busier direction; 0 where none is known."""
        return max(self.loads or (0.0,))


BUSY = (0.01, 0.05, 0.2, 0.5)
"""Shares of the time that part the classes `busy-link-1` to `busy-link-5`; a link that carries nothing is in none.

Classes `edge-1` to `edge-5` lie under the busiest link, a little wider."""

WIDE = (0.15, 0.4, 0.9)
"""Shares of the widest link's bandwidth that part the classes `wide-link-1` to `wide-link-4`."""

SWITCH = 5.0
"""Radius of a switch, px."""


def network_body(nodes: Sequence[Node], links: Sequence[Link], layout: Layout) -> Markup:
    """The elements of a drawing: every link once, the busiest last, and every node once upon them."""
    widest = max((link.bandwidth for link in links), default=0.0)
    order = sorted(range(len(links)), key=lambda index: (links[index].busy, links[index].bandwidth, -index))
    drawn = [*_outline(links, order, layout)]
    for index in order:
        link = links[index]
        named = element("title", link_words(nodes, link))
        drawn.append(element("path", named, class_=link_style(link, widest), d=_line(layout, index, link.ends)))
    labels = [text(x, y, words) for x, y, words in layout.labels]
    drawn.append(element("g", joined(labels), class_="tick small"))
    return joined([*drawn, *_nodes(nodes, layout)])


def busiest(links: Sequence[Link]) -> int | None:
    """The link that is busy the longest, the first of several; None: none carries anything."""
    index = max(range(len(links)), key=lambda each: (links[each].busy, -each), default=None)
    return index if index is not None and links[index].busy > 0 else None


def link_words(nodes: Sequence[Node], link: Link) -> str:
    """The ends of a link, its bandwidth and its loads."""
    one, two = (nodes[end].name for end in link.ends)
    words = f"{one} – {two}: {format_decimal(link.bandwidth, 'B/s')}"
    if link.loads is None:
        return words
    if not link.is_shared:
        return f"{words} for each device"
    return f"{words}, busy {percent(link.loads[0])} of the time from {one}, {percent(link.loads[1])} from {two}"


def node_words(node: Node) -> str:
    """A node and what it serves."""
    if not node.is_device:
        return f"switch {node.name}"
    if node.place is None:
        return f"{node.name}: not used"
    return f"{node.name}: stage {node.place.stage + 1} of replica {node.place.replica + 1}"


def link_style(link: Link, widest: float) -> str:
    """The class of a link: by its load, or, where that is not known, by its bandwidth beside the widest."""
    if link.loads is None:
        return f"link wide-link-{1 + sum(link.bandwidth >= share * widest for share in WIDE)}"
    if not link.is_shared:
        return "link free-link"
    if link.busy <= 0:
        return "link unused-link"
    return f"link busy-link-{1 + sum(link.busy > share for share in BUSY)}"


def link_keys(links: Sequence[Link]) -> tuple[Key, ...]:
    """Legend of these links' classes; empty for a single class."""
    if all(link.loads is None for link in links):
        return _width_keys(links)
    styles = {link_style(link, 0.0) for link in links}
    shares = [f"{percent(share, 0)}" for share in BUSY]
    bounds = (f"up to {shares[0]}", *map("{} to {}".format, shares, shares[1:]), f"above {shares[-1]}")
    known = {f"link busy-link-{index + 1}": f"busy {words}" for index, words in enumerate(bounds)}
    free = "link whose bandwidth each device has to itself"
    known = {"link free-link": free, "link unused-link": "link that carries nothing", **known}
    return tuple(Key(words, style, "line") for style, words in known.items() if style in styles)


def _width_keys(links: Sequence[Link]) -> tuple[Key, ...]:
    """Legend of link widths, the narrowest first; empty for a single width."""
    widest = max((link.bandwidth for link in links), default=0.0)
    widths: dict[str, list[float]] = {}
    for bandwidth in sorted({link.bandwidth for link in links}):
        widths.setdefault(link_style(Link((0, 0), bandwidth), widest), []).append(bandwidth)
    ranges = ((style, (each[0], each[-1])[: len(each)]) for style, each in widths.items())
    keys = [Key(" to ".join(format_decimal(each, "B/s") for each in ends), style, "line") for style, ends in ranges]
    return tuple(keys) if len(keys) > 1 else ()


def _outline(links: Sequence[Link], order: Sequence[int], layout: Layout) -> Iterable[Markup]:
    """Outline of the busiest link, so that it stands out without its colour."""
    index = busiest(links)
    if index is not None:
        edge = link_style(links[index], 0.0).replace("busy-link", "edge")
        yield element("path", class_=edge, d=_line(layout, index, links[index].ends))


def _line(layout: Layout, index: int, ends: tuple[int, int]) -> str:
    """The `d` of a link: from end to end, or a short line at each end."""
    one, two = (layout.at[end] for end in ends)
    stubs = layout.stubs.get(index)
    if stubs is None:
        return f"{_moved(one)}L{number(two[0])} {number(two[1])}"
    return "".join(f"{_moved(at)}l{number(x)} {number(y)}" for at, (x, y) in zip((one, two), stubs, strict=True))


def _moved(at: Point) -> str:
    return f"M{number(at[0])} {number(at[1])}"


def _nodes(nodes: Sequence[Node], layout: Layout) -> Iterable[Markup]:
    """Cells of devices with their numbers, circles of switches, and an outline around the first of several replicas."""
    side, first, numbers = layout.side, [], []
    replicas = {node.place.replica for node in nodes if node.place is not None}
    labels, alike = _labels(nodes, len(replicas) > 1, side), alone(nodes)
    for node, (x, y), label in zip(nodes, layout.at, labels, strict=True):
        named = element("title", node_words(node))
        if not node.is_device:
            yield element("circle", named, class_="panel edged", cx=x, cy=y, r=SWITCH)
            continue
        box, place = (x - side / 2, y - side / 2, side, side), node.place
        style = "panel edged" if place is None else stage_style(place.replica if alike else place.stage)
        yield element("path", named, class_=style, d=boxes([box]))
        if place is not None:
            numbers.append(_number(label, x, y, side))
            if place.replica == 0:
                first.append(box)
    if len(replicas) > 1 and not alike:
        yield element("path", class_="line strong", d=boxes(first))
    yield element("g", joined(numbers), class_="cells", text_anchor="middle")


def alone(nodes: Sequence[Node]) -> bool:
    """Return whether each of several replicas has one stage: colours and numbers are then those of replicas."""
    places = [node.place for node in nodes if node.place is not None]
    return len({place.replica for place in places}) > 1 and all(place.stage == 0 for place in places)


def _labels(nodes: Sequence[Node], several: bool, side: float) -> list[str]:
    """The stage of each device; of several replicas `replica.stage`, where every cell has room for that."""
    places = [node.place for node in nodes]
    if alone(nodes):
        return [str(place.replica + 1) if place is not None else "" for place in places]
    whole = [f"{place.replica + 1}.{place.stage + 1}" if place is not None else "" for place in places]
    if several and all(fits(each, side - 2, 10) for each in whole):
        return whole
    return [str(place.stage + 1) if place is not None else "" for place in places]


def _number(label: str, x: float, y: float, side: float) -> Markup:
    tight = "tight" if not fits(label, side - 2, 10) else None
    return element("text", label, class_=tight, x=x, y=y + 3.5)
