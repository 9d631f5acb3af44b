"""Networks as written: parameters of well-known ones, a graph, or a measured matrix (FORMATS.md)."""

from typing import Any, ClassVar

from attrs import field, frozen

from nest.errors import FieldError, FieldErrors
from nest.records import Record
from nest.spec.validators import above, at_least, each, every, not_empty, one_of
from nest.units import BytesPerSecond, Seconds

DEVICE_WORDS = ("device", "gpu", "tpu", "accelerator", "node", "host", "server")
SWITCH_WORDS = ("switch", "router")


@frozen(eq=False, repr=False)
class TorusSpec(Record):
    """Devices on a grid whose every row closes to a ring, as TPU v4's three dimensions (arXiv 2304.01433, section 2).

    Attributes:
        shape: devices along each dimension; the last varies fastest in the numbering.
        bandwidth: of one link, bytes per second and direction.
        latency: of one link, seconds.
        wrap: whether rows close to rings: of all dimensions, or of each. Two devices in a row have one link.
    """

    WRITTEN_UNDER: ClassVar[str] = "torus"

    shape: tuple[int, ...] = field(validator=every(not_empty, each(at_least(1))))
    bandwidth: BytesPerSecond = field(validator=above(0))
    latency: Seconds = field(default=Seconds(0.0), validator=at_least(0))
    wrap: tuple[bool, ...] = (True,)

    def __attrs_post_init__(self) -> None:
        if len(self.wrap) not in (1, len(self.shape)):
            wrong = f"has {len(self.wrap)} items; give one for all dimensions or one for each of the {len(self.shape)}"
            raise FieldError(("wrap",), wrong)


@frozen(eq=False, repr=False)
class MeshSpec(Record):
    """Devices on a grid, neighbours linked.

    Attributes:
        shape: devices along each dimension; the last varies fastest in the numbering.
        bandwidth: of one link, bytes per second and direction.
        latency: of one link, seconds.
    """

    WRITTEN_UNDER: ClassVar[str] = "mesh"

    shape: tuple[int, ...] = field(validator=every(not_empty, each(at_least(1))))
    bandwidth: BytesPerSecond = field(validator=above(0))
    latency: Seconds = field(default=Seconds(0.0), validator=at_least(0))


@frozen(eq=False, repr=False)
class DragonflySpec(Record):
    """Groups of routers, each group linked to every other (Kim, Dally, Scott and Abts, ISCA 2008, section 3).

    Attributes:
        p: devices (terminals) of a router.
        a: routers of a group; every two of a group are linked.
        h: links of a router to other groups.
        bandwidth: of one link, bytes per second and direction.
        latency: of one link, seconds.
        groups: number of groups; None: the most there can be, `a * h + 1`.
        local_bandwidth: of links inside a group; None: `bandwidth`.
        local_latency: of links inside a group; None: `latency`.
        global_bandwidth: of links between groups; None: `bandwidth`.
        global_latency: of links between groups; None: `latency`.
    """

    WRITTEN_UNDER: ClassVar[str] = "dragonfly"

    p: int = field(validator=at_least(1))
    a: int = field(validator=at_least(1))
    h: int = field(validator=at_least(1))
    bandwidth: BytesPerSecond = field(validator=above(0))
    latency: Seconds = field(default=Seconds(0.0), validator=at_least(0))
    groups: int | None = field(default=None, validator=at_least(1))
    local_bandwidth: BytesPerSecond | None = field(default=None, validator=above(0))
    local_latency: Seconds | None = field(default=None, validator=at_least(0))
    global_bandwidth: BytesPerSecond | None = field(default=None, validator=above(0))
    global_latency: Seconds | None = field(default=None, validator=at_least(0))

    def __attrs_post_init__(self) -> None:
        if self.groups is not None and self.groups > self.a * self.h + 1:
            sentence = f"is {self.groups}; {self.a} routers of {self.h} links reach {self.a * self.h} other groups"
            raise FieldError(("groups",), sentence)


@frozen(eq=False, repr=False)
class RailOptimisedSpec(Record):
    """Nodes of GPUs joined by NVLink; the GPUs of one number in all nodes of a unit share a leaf switch, their rail.

    NVIDIA DGX SuperPOD reference architecture (https://docs.nvidia.com/dgx-superpod/).

    Attributes:
        nodes: number of nodes.
        gpus: GPUs of a node, and so rails.
        nvlink_bandwidth: bytes per second of one GPU and direction inside a node.
        bandwidth: bytes per second of one GPU's network adapter and direction.
        nvlink_latency: seconds between two GPUs of a node.
        latency: seconds of one link of the network.
        unit: nodes whose GPUs share leaf switches (a scalable unit); None: all.
        oversubscription: bandwidth of a leaf switch to its GPUs over that to the spine.
        spine: whether a spine joins the leaf switches; if not, rails meet inside nodes only.
    """

    WRITTEN_UNDER: ClassVar[str] = "rail-optimised"

    nodes: int = field(validator=at_least(1))
    gpus: int = field(validator=at_least(1))
    nvlink_bandwidth: BytesPerSecond = field(validator=above(0))
    bandwidth: BytesPerSecond = field(validator=above(0))
    nvlink_latency: Seconds = field(default=Seconds(0.0), validator=at_least(0))
    latency: Seconds = field(default=Seconds(0.0), validator=at_least(0))
    unit: int | None = field(default=None, validator=at_least(1))
    oversubscription: float = field(default=1.0, validator=at_least(1))
    spine: bool = True

    def __attrs_post_init__(self) -> None:
        if self.unit is not None and self.nodes % self.unit:
            raise FieldError(("unit",), f"is {self.unit}, which does not divide the {self.nodes} nodes")
        if not self.spine and self.unit not in (None, self.nodes):
            raise FieldError(("spine",), "is false, which leaves the units unconnected; leave `unit` out")


@frozen(eq=False, repr=False)
class FatTreeSpec(Record):
    """A fat tree of equal switches (Al-Fares, Loukissas and Vahdat, SIGCOMM 2008), or by tiers (Leiserson, 1985).

    Attributes:
        bandwidth: of a device's link, bytes per second and direction.
        k: ports of every switch: `k` pods of `k/2` edge and `k/2` aggregation switches, `k**3/4` devices.
        fanout: in place of `k`: children of a switch of each tier, innermost tier first.
        latency: of one link, seconds.
        oversubscription: for each tier below the top, innermost first, bandwidth to its children over that upwards;
            those left out are 1.
    """

    WRITTEN_UNDER: ClassVar[str] = "fat-tree"

    bandwidth: BytesPerSecond = field(validator=above(0))
    k: int | None = field(default=None, validator=at_least(2))
    fanout: tuple[int, ...] | None = field(default=None, validator=every(not_empty, each(at_least(1))))
    latency: Seconds = field(default=Seconds(0.0), validator=at_least(0))
    oversubscription: tuple[float, ...] = field(default=(), validator=each(at_least(1)))

    def __attrs_post_init__(self) -> None:
        if (self.k is None) == (self.fanout is None):
            raise FieldError(("k",), "and fanout describe the same; give one of them")
        if self.k is not None and self.k % 2:
            raise FieldError(("k",), f"must be even, is {self.k}")
        tiers = 3 if self.fanout is None else len(self.fanout)
        if len(self.oversubscription) > tiers - 1:
            sentence = f"has {len(self.oversubscription)} items; below the top there are {tiers - 1} tiers"
            raise FieldError(("oversubscription",), sentence)


@frozen(eq=False, repr=False)
class MatrixSpec(Record):
    """Measured bandwidth, and perhaps latency, between every two devices.

    Attributes:
        bandwidth: devices by devices, bytes per second; of both directions the lower counts, the diagonal is ignored.
        latency: seconds for all pairs, or devices by devices; of both directions the higher counts.
        names: of the devices; None: their numbers.
    """

    WRITTEN_UNDER: ClassVar[str] = "matrix"

    bandwidth: tuple[tuple[BytesPerSecond | None, ...], ...] = field(validator=not_empty)
    latency: Seconds | tuple[tuple[Seconds | None, ...], ...] = field(default=Seconds(0.0))
    names: tuple[str, ...] | None = None

    def __attrs_post_init__(self) -> None:
        count = len(self.bandwidth)
        errors = list(_not_square("bandwidth", self.bandwidth, count))
        if isinstance(self.latency, tuple):
            errors += _not_square("latency", self.latency, count)
        elif self.latency < 0:
            errors.append(FieldError(("latency",), f"must be at least 0, is {self.latency:g}"))
        if self.names is not None and len(self.names) != count:
            errors.append(FieldError(("names",), f"has {len(self.names)} items for {count} devices"))
        if errors:
            raise FieldErrors(errors)


def _not_square(name: str, rows: tuple[tuple[float | None, ...], ...], count: int) -> list[FieldError]:
    if len(rows) != count:
        return [FieldError((name,), f"has {len(rows)} rows for {count} devices")]
    for index, row in enumerate(rows):
        if len(row) != count:
            sentence = f"has {len(row)} items, the matrix has {count} rows; it must be square"
            return [FieldError((name, index), sentence)]
    return []


@frozen(eq=False, repr=False)
class NodeSpec(Record):
    """A device or switch of a graph.

    Attributes:
        id: its name.
        kind: `device` (default) or `switch`, or a synonym of one of them.
        devices: number of devices it stands for, which share its links evenly.
        bandwidth: of several devices, bytes per second and direction of one device inside it; None: they meet outside.
        latency: seconds between two devices inside it.
        other: other attributes in the graph; ignored.
    """

    REST_IN: ClassVar[str] = "other"

    id: str | int
    kind: str = field(default="device", validator=one_of((*DEVICE_WORDS, *SWITCH_WORDS)))
    devices: int = field(default=1, validator=at_least(1))
    bandwidth: BytesPerSecond | None = field(default=None, validator=above(0))
    latency: Seconds = field(default=Seconds(0.0), validator=at_least(0))
    other: dict[str, Any] = field(factory=dict)


@frozen(eq=False, repr=False)
class LinkSpec(Record):
    """A link of a graph.

    Attributes:
        source: the node at one end.
        target: the node at the other end.
        bandwidth: bytes per second and direction, of all parallel cables together; None: the graph's.
        latency: seconds; None: the graph's, or 0.
        other: other attributes in the graph; ignored.
    """

    REST_IN: ClassVar[str] = "other"

    source: str | int
    target: str | int
    bandwidth: BytesPerSecond | None = field(default=None, validator=above(0))
    latency: Seconds | None = field(default=None, validator=at_least(0))
    other: dict[str, Any] = field(factory=dict)


@frozen(eq=False, repr=False)
class GraphDefaults(Record):
    """Defaults of a graph.

    Attributes:
        bandwidth: of links without one, bytes per second and direction.
        latency: of links without one, seconds.
        shared: whether the devices behind a link between switches share it; false: each device gets its bandwidth.
        other: other attributes; ignored.
    """

    REST_IN: ClassVar[str] = "other"

    bandwidth: BytesPerSecond | None = field(default=None, validator=above(0))
    latency: Seconds = field(default=Seconds(0.0), validator=at_least(0))
    shared: bool = True
    other: dict[str, Any] = field(factory=dict)


@frozen(eq=False, repr=False)
class GraphSpec(Record):
    """Devices and switches joined by links, in networkx's node-link data.

    Attributes:
        nodes: devices and switches.
        edges: links.
        links: links, under the key of networkx before version 3.4.
        graph: defaults.
        directed: whether each link is listed once per direction; the worse direction counts.
        multigraph: whether two nodes may have several links, which are bundled.
    """

    nodes: tuple[NodeSpec, ...] = field(validator=not_empty)
    edges: tuple[LinkSpec, ...] = ()
    links: tuple[LinkSpec, ...] = ()
    graph: GraphDefaults = GraphDefaults()
    directed: bool = False
    multigraph: bool = False


Generated = TorusSpec | MeshSpec | DragonflySpec | RailOptimisedSpec | FatTreeSpec | MatrixSpec
"""Networks written under a keyword."""

Topology = Generated | GraphSpec
"""Content of a topology file."""

GENERATORS: tuple[str, ...] = ("torus", "mesh", "dragonfly", "rail-optimised", "fat-tree", "matrix")
"""Keywords of `Generated`."""
