"""The cluster, level by level, with the stage of every device."""

from collections.abc import Iterable, Sequence
from math import prod

from attrs import evolve, frozen
from markupsafe import Markup

from nest.deployment.ranks import named_seats, seats
from nest.errors import InputError
from nest.instance import Cluster
from nest.public.planning import first_devices, replica_sizes
from nest.public.text import counted
from nest_page.nested_boxes import LABEL, PAD, Layout, fanouts_of_cells, gathered
from nest_page.palette import STAGES, stage_style
from nest_page.records import Cell, Drawing, Figure, Subject, Table
from nest_page.svg import WIDTH, WIDTHS, boxes, element, fits, joined, number, text


@frozen
class Place:
    """The replica and the stage of a device of a plan, from 0."""

    replica: int
    stage: int


@frozen
class Devices:
    """The devices of a cluster along its levels.

    Attributes:
        places: of each device; None: the plan does not use it.
        cluster: their levels.
        names: of each device, as its network calls them; empty: they have but numbers.
        hosts: of each device, the name of its machine; empty: nobody named the machines.
        pool: name of the pool that they are; None: the cluster has one kind of device.
    """

    places: tuple[Place | None, ...]
    cluster: Cluster
    names: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    pool: str | None = None

    def blocks(self, stage: int) -> tuple[tuple[int, ...], ...]:
        """For each replica, the devices of a stage in ascending order."""
        blocks: dict[int, list[int]] = {}
        for device, place in enumerate(self.places):
            if place is not None and place.stage == stage:
                blocks.setdefault(place.replica, []).append(device)
        return tuple(tuple(blocks[replica]) for replica in sorted(blocks))


def devices(subject: Subject) -> Devices:
    """The devices of a plan; on a network that is no hierarchy, those that its placement names."""
    size = subject.instance.cluster.size
    places: list[Place | None] = [None] * size
    placement, network = subject.solution.placement, subject.instance.network
    if placement is not None and network is not None:
        for replica, blocks in enumerate(placement):
            for stage, block in enumerate(blocks):
                for device in block:
                    places[device] = Place(replica, stage)
        named = named_seats(network.model.names)
        hosts = tuple(seat.node for seat in named) if named is not None and named[0].named else ()
        return Devices(tuple(places), subject.instance.cluster, network.model.names, hosts)
    _lay(places, subject, None)
    return Devices(tuple(places), subject.instance.cluster, (), _hosts(subject, size))


def _lay(places: list[Place | None], subject: Subject, pool: str | None) -> None:
    """Write down which devices the blocks of the stages in a pool, or in the cluster, cover."""
    solution, instance = subject.solution, subject.instance
    rooms = replica_sizes(instance, solution)
    for stage, (decided, room) in enumerate(zip(solution.stages, rooms, strict=True)):
        candidate = instance.candidates[decided.candidate]
        if candidate.pool != pool:
            continue
        for replica, first in enumerate(first_devices(solution, room, decided.offset, candidate.width).tolist()):
            places[first : first + candidate.width] = [Place(replica, stage)] * candidate.width


def pool_figures(subject: Subject) -> tuple[Figure, ...]:
    """A figure as `cluster_figure` for each pool; none: the cluster has one kind of device."""
    pools = () if subject.instance.pools is None else subject.instance.pools.members
    figures = []
    for index, pool in enumerate(pools):
        places: list[Place | None] = [None] * pool.cluster.size
        _lay(places, subject, pool.name)
        drawn = _figure(subject, Devices(tuple(places), pool.cluster, pool=pool.name))
        figures.append(evolve(drawn, name=f"pool-{index + 1}", title=f"{TITLE}: pool {pool.name}"))
    return tuple(figures)


def _hosts(subject: Subject, size: int) -> tuple[str, ...]:
    """The machine of each device, where somebody named them."""
    cluster = subject.problem.cluster
    if not cluster.hosts:
        return ()
    try:
        places = seats(size, cluster.hosts, cluster.devices_per_host, subject.instance.cluster.capacities[0])
    except InputError:  # Hosts that do not hold the devices stop who starts processes, not who draws.
        return ()
    return tuple(seat.node for seat in places)


MOST_CELLS = 2048
"""Cells drawn one by one; of larger clusters, neighbours of one stage are one cell."""

_LARGE, _SMALL = (22.0, 2.0), (16.0, 2.0)
"""Side of a cell and room between cells, px: of few cells, and of more than `_FEW`."""

_FEW = 192

LONGEST = 12
"""Characters of an innermost group's name that are tried; longer ones are cut."""


@frozen
class _Picture:
    """The parts of a drawing.

    Attributes:
        layout: of the boxes.
        levels: name of each level that has boxes, innermost first.
        many: devices of a cell.
        cells: drawn, from the first on.
        devices: those of the cluster.
    """

    layout: Layout
    levels: tuple[str, ...]
    many: int
    cells: int
    devices: Devices

    def place(self, cell: int) -> Place | None:
        """The stage of a cell."""
        return self.devices.places[cell * self.many]


def cluster_figure(subject: Subject) -> Figure:
    """Nested boxes with a numbered cell for each device, and the devices of each stage as a table."""
    return _figure(subject, devices(subject))


def _figure(subject: Subject, drawn_devices: Devices) -> Figure:
    where = "the cluster" if drawn_devices.pool is None else f"pool {drawn_devices.pool}"
    caption = _caption(subject, _picture(drawn_devices, WIDTH))

    def drawn(room: float) -> tuple[Drawing, ...]:
        picture = _picture(drawn_devices, room)
        width, height = picture.layout.size(len(picture.layout.fanouts) - 1)
        body = joined([*_frames(picture), *_cells(picture)])
        title = f"The {len(drawn_devices.places):,} devices of {where} by stage"
        return (Drawing(max(width, 1.0), height + 1, body, title, caption),)

    return Figure("cluster", TITLE, caption, tuple(map(drawn, WIDTHS)), stage_devices(subject, drawn_devices))


TITLE = "Stages on the cluster"


def stage_devices(subject: Subject, drawn_devices: Devices) -> Table:
    """The devices of each stage that is drawn here."""
    present = {place.stage for place in drawn_devices.places if place is not None}
    rows = tuple(_row(index, drawn_devices) for index in range(len(subject.plan.stages)) if index in present)
    return Table("Devices by stage", ("stage", "devices in a replica", "devices", "which"), rows, (0, 3))


def _picture(drawn_devices: Devices, room: float) -> _Picture:
    cluster = drawn_devices.cluster
    many = gathered(drawn_devices.places, cluster.capacities, MOST_CELLS)
    fanouts = fanouts_of_cells(cluster.capacities, many, MOST_CELLS)
    cells = prod(fanouts)
    cell, between = _LARGE if cells <= _FEW else _SMALL
    names = [level.name for level in cluster.levels]
    capacities = dict(zip(reversed(cluster.capacities), reversed(names), strict=True))
    inside = [many * prod(fanouts[: level + 1]) for level in range(len(fanouts))]
    return _Picture(
        Layout(fanouts, cell, between, room),
        tuple(capacities.get(each, "") for each in inside),
        many,
        cells,
        drawn_devices,
    )


def _caption(subject: Subject, picture: _Picture) -> str:
    """Describe the drawing and what it leaves out."""
    drawn_devices = picture.devices
    size = len(drawn_devices.places)
    what = "device" if picture.many == 1 else f"run of {picture.many:,} devices of one stage"
    sentences = [f"Each cell is a {what}, coloured and numbered by its pipeline stage"]
    if subject.instance.network is not None:
        sentences[0] += "; the network is too large to draw."
        sentences.append("Neighbours in the drawing are mostly neighbours in the network.")
    else:
        boxes_of = ", ".join(dict.fromkeys(reversed(picture.levels)))
        sentences[0] += f"; boxes are levels of the network{f': {boxes_of}' if boxes_of else ''}."
    sentences += of_devices(subject, drawn_devices)
    drawn = picture.cells * picture.many
    if drawn < size:
        sentences.append(f"Drawn are the first {drawn:,} of {size:,} devices; the table has all of them.")
    return " ".join(sentences)


def of_devices(subject: Subject, drawn_devices: Devices, by_replica: bool = False) -> list[str]:
    """Sentences on replicas, devices that are not used, and colours, which are those of stages or of replicas."""
    stages, size = len(subject.plan.stages), len(drawn_devices.places)
    used = sum(place is not None for place in drawn_devices.places)
    sentences = []
    replicas = subject.plan.data_parallel or 1
    if replicas > 1:
        outline = "" if by_replica else "; the first one has an outline"
        sentences.append(f"There are {replicas:,} replicas of {counted(stages, 'stage')}{outline}.")
    if used < size:
        sentences.append(f"{size - used:,} of {size:,} devices are not used; their cells are empty.")
    if (replicas if by_replica else stages) > len(STAGES):
        sentences.append(
            f"Colours repeat after {len(STAGES)} {'replicas' if by_replica else 'stages'}, numbers do not."
        )
    return sentences


def _frames(picture: _Picture) -> Iterable[Markup]:
    """The boxes of each level with their names, the outermost first."""
    layout = picture.layout
    for level in range(len(layout.fanouts) - 1, -1, -1):
        width, height = layout.size(level)
        places = [layout.origin(level, group) for group in range(layout.groups(level))]
        style = "panel" if level == 0 else "frame"
        yield element("path", class_=style, d=boxes((x + 0.5, y + 0.5, width - 1, height - 1) for x, y in places))
        labels = [
            text(x + PAD, y + LABEL - 1, name)
            for group, (x, y) in enumerate(places)
            if (name := _name(picture, level, group, width - 2 * PAD))
        ]
        yield element("g", joined(labels), class_="tick small")


def _name(picture: _Picture, level: int, group: int, width: float) -> str:
    """Name a box, as far as there is room."""
    inside = prod(picture.layout.fanouts[: level + 1]) * picture.many
    hosts = picture.devices.hosts[group * inside : (group + 1) * inside]
    name = f"{picture.levels[level] or 'group'} {group + 1}"
    if hosts and len(set(hosts)) == 1:
        name = hosts[0]
    return next((label for label in (name, name[: LONGEST - 1] + "…", str(group + 1)) if fits(label, width, 10)), "")


def _cells(picture: _Picture) -> Iterable[Markup]:
    """The cells of each stage as one path, the outline of the first replica, and the numbers."""
    layout = picture.layout
    at = [layout.origin(-1, cell) for cell in range(picture.cells)]
    by_stage: dict[int, list[int]] = {}
    empty: list[int] = []
    for cell in range(picture.cells):
        place = picture.place(cell)
        (empty if place is None else by_stage.setdefault(place.stage, [])).append(cell)
    for stage, members in sorted(by_stage.items()):
        named = element("title", f"stage {stage + 1}")
        yield element("path", named, class_=stage_style(stage), d=_squares(members, at, layout.cell))
    if empty:
        yield element("path", element("title", "not used"), class_="frame", d=_squares(empty, at, layout.cell))
    first = [cell for members in by_stage.values() for cell in members if _is_first(picture.place(cell))]
    if any(not _is_first(picture.place(cell)) for members in by_stage.values() for cell in members):
        yield element("path", class_="line strong", d=_squares(sorted(first), at, layout.cell))
    numbers = [
        _numbered(stage + 1, *at[cell], layout.cell) for stage, members in sorted(by_stage.items()) for cell in members
    ]
    yield element("g", joined(numbers), class_="cells", text_anchor="middle")


def _numbered(stage: int, x: float, y: float, side: float) -> Markup:
    """A stage's number in the middle of a cell; one of two digits is set smaller in a small cell."""
    tight = ' class="tight"' if stage >= 10 and side < _LARGE[0] else ""
    return Markup(f'<text{tight} x="{number(x + side / 2)}" y="{number(y + side / 2 + 3.5)}">{stage}</text>')


def _is_first(place: Place | None) -> bool:
    return place is not None and place.replica == 0


def _squares(cells: Sequence[int], at: Sequence[tuple[float, float]], side: float) -> str:
    return boxes((*at[cell], side, side) for cell in cells)


def _row(stage: int, drawn_devices: Devices) -> tuple[Cell, ...]:
    blocks = drawn_devices.blocks(stage)
    count = sum(len(block) for block in blocks)
    named = drawn_devices.names
    which = (
        device_spans(blocks) if not named else "; ".join(" ".join(named[each] for each in block) for block in blocks)
    )
    return Cell(str(stage + 1)), Cell(f"{len(blocks[0]):,}", len(blocks[0])), Cell(f"{count:,}", count), Cell(which)


def runs(numbers: tuple[int, ...]) -> list[tuple[int, int]]:
    """First and last of each run of neighbours among ascending numbers."""
    ranges: list[tuple[int, int]] = []
    for each in numbers:
        if ranges and ranges[-1][1] == each - 1:
            ranges[-1] = ranges[-1][0], each
        else:
            ranges.append((each, each))
    return ranges


def device_spans(blocks: tuple[tuple[int, ...], ...]) -> str:
    """The devices of a stage in all replicas, in words: `0-7 (16 times, 64 apart)`."""
    spans = runs(tuple(sorted(device for block in blocks for device in block)))
    parts: list[str] = []
    place = 0
    while place < len(spans):
        first, last = spans[place]
        again = _repeats(spans, place)
        text = f"{first}-{last}" if last > first else str(first)
        if again >= 4:
            step = spans[place + 1][0] - first
            parts.append(f"{text} ({again} times, {step} apart)")
            place += again
        else:
            parts.append(text)
            place += 1
    return ", ".join(parts)


def _repeats(spans: list[tuple[int, int]], place: int) -> int:
    """Runs from `place` on that are equally long and equally far apart."""
    if place + 1 >= len(spans):
        return 1
    first, last = spans[place]
    step = spans[place + 1][0] - first
    count = 1
    while place + count < len(spans) and spans[place + count] == (first + count * step, last + count * step):
        count += 1
    return count
