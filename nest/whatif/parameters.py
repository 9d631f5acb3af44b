"""Parameters of a problem: bandwidths, memory, peak compute, devices, global batch."""

from collections.abc import Callable, Iterator
from functools import partial
from math import isclose, isfinite, prod
from typing import Any

import numpy
from attrs import asdict, evolve, field, fields, frozen

from nest.catalogue import link, network_levels
from nest.catalogue.nodes import with_levels
from nest.errors import FieldErrors, InputError
from nest.formulate.cluster import build_cluster, described
from nest.formulate.model import matrix_peak
from nest.formulate.topology import imported
from nest.hooks.registry import Registry
from nest.instance import Cluster
from nest.network import LinkGraph
from nest.network.graph import written_graph
from nest.spec import ClusterSpec, DeviceSpec, LevelSpec, PoolSpec, Problem, ProfileSpec
from nest.spec.device import MatrixPeaks
from nest.spec.topology import MatrixSpec
from nest.tolerances import AGREEMENT
from nest.units import Bytes, BytesPerSecond


@frozen
class Parameter:
    """A number of a problem that can be varied, all else equal.

    Attributes:
        name: in tables: `bandwidth of rack`, `memory`, `global batch`.
        value: of the problem.
        unit: SI unit, or what is counted: `bytes/s`, `bytes`, `FLOP/s`, `samples`, `devices`.
        change: the problem with another value.
        multiple_of: values are whole multiples of it; 0: any above 0.
        at_least: values are above it.
        pool: name of its pool; None: of the cluster.
    """

    name: str
    value: float
    unit: str
    change: Callable[[Problem, float], Problem] = field(eq=False, repr=False)
    multiple_of: int = 0
    at_least: float = 0.0
    pool: str | None = None

    def allows(self, value: float) -> bool:
        """True if the problem can have this value."""
        whole = not self.multiple_of or value % self.multiple_of == 0
        return isfinite(value) and value > self.at_least and whole

    def changed(self, problem: Problem, value: float) -> Problem:
        """Problem with that value.

        Args:
            problem: self-contained: the parameter's own, perhaps with other parameters changed.
            value: in the unit of the parameter.

        Raises:
            InputError: there is no such problem.
        """
        if not self.allows(value):
            kind = f"a multiple of {self.multiple_of}" if self.multiple_of else "a finite number"
            raise InputError(f"{self.name} must be {kind} above {self.at_least:g}, is {value:g}.")
        try:
            return self.change(problem, value)
        except FieldErrors as error:
            raise InputError(f"{error}.") from None


MOST_CLASSES = 6
"""Most classes of links of equal bandwidth varied separately; more, such as measured ones, are varied together."""

UNIT = "bytes/s"

Change = Callable[[ClusterSpec, float], ClusterSpec]  # Sets another bandwidth in a cluster.
Scale = Callable[[float], float]  # Maps an old bandwidth to a new one.
Scaled = Callable[[ClusterSpec, Scale], ClusterSpec]  # Applies a function to every bandwidth of a cluster.


def bandwidths(cluster: ClusterSpec, known: Registry) -> tuple[Parameter, ...]:
    """Nominal bandwidths of the network of a self-contained problem, in written order.

    For a level with a named link, the share of bandwidth reached and the lines of collectives scale with it; the
    seconds of a call and of a step stay (docs/reference/devices.md, "Links").

    Args:
        cluster: the section of the problem.
        known: offers topology importers.

    Raises:
        InputError: the network cannot be used.
    """
    topology = cluster.topology
    if topology is None or isinstance(topology, str):
        return tuple(_of_levels(cluster))
    if not isinstance(topology, (dict, MatrixSpec)):
        return tuple(_of_generated(topology))
    if isinstance(topology, MatrixSpec):
        return tuple(_of_classes(cluster, _matrix_scaled))
    network = imported(cluster, known, None)
    if isinstance(network, LinkGraph):
        return tuple(_of_classes(cluster, lambda section, scale: _graph_scaled(section, known, scale)))
    return ()  # What else importers make of content in place is written nowhere with bandwidths that could be changed.


def _parameter(name: str, value: float, change: Change) -> Parameter:
    def changed(problem: Problem, bandwidth: float) -> Problem:
        return evolve(problem, cluster=change(problem.cluster, bandwidth))

    return Parameter(f"bandwidth of {name}", value, UNIT, changed)


def _of_levels(cluster: ClusterSpec) -> Iterator[Parameter]:
    """A parameter for each level that messages can cross."""
    levels = with_levels(cluster).levels or ()
    names = [level.name or f"level {index}" for index, level in enumerate(levels)]
    for index, (level, name) in enumerate(zip(levels, names, strict=True)):
        nominal = _nominal(level)
        if level.fanout > 1 and nominal is not None:
            label = name if names.count(name) == 1 else f"{name} (level {index})"
            made_of = _member(level)
            label += "" if made_of == level.link else f" ({made_of})"  # Whoever writes it must name that member, too.
            yield _parameter(label, nominal, _level_changed(index))


def _nominal(level: LevelSpec) -> float | None:
    return link(level.link).bandwidth if level.bandwidth is None and level.link is not None else level.bandwidth


def _level_changed(index: int) -> Change:
    def changed(cluster: ClusterSpec, bandwidth: float) -> ClusterSpec:
        whole = with_levels(cluster)
        levels = list(whole.levels or ())
        same = isclose(bandwidth, _nominal(levels[index]) or 0.0, rel_tol=AGREEMENT)
        made_of = levels[index].link if same else _member(levels[index])
        levels[index] = evolve(levels[index], bandwidth=BytesPerSecond(bandwidth), link=made_of)
        return evolve(whole, levels=tuple(levels))

    return changed


def _member(level: LevelSpec) -> str | None:
    """Link of a level at any changed bandwidth: of a family, its current member.

    Otherwise NVLink with four fifths of a generation's bandwidth would belong to no generation.
    """
    nominal = _nominal(level)
    if level.link is None or nominal is None:
        return level.link
    members = (link(name) for name in link(level.link).generations)
    same = (each.name for each in members if each.bandwidth and isclose(each.bandwidth, nominal, rel_tol=AGREEMENT))
    return next(same, level.link)


def _of_generated(topology: Any) -> Iterator[Parameter]:
    """A parameter for each bandwidth of a generated network, named as its key."""
    for each in fields(type(topology)):
        value = getattr(topology, each.name)
        if each.name.endswith("bandwidth") and value is not None:
            kind = each.name.removesuffix("bandwidth").replace("_", " ")
            yield _parameter(f"{kind}links", value, _key_changed(each.name))


def _key_changed(key: str) -> Change:
    def changed(cluster: ClusterSpec, bandwidth: float) -> ClusterSpec:
        written: dict[str, Any] = {key: bandwidth}
        topology: Any = cluster.topology
        return evolve(cluster, topology=evolve(topology, **written))

    return changed


def _of_classes(cluster: ClusterSpec, scaled: Scaled) -> Iterator[Parameter]:
    """A parameter for each bandwidth of links; with many, such as measured ones, one for all.

    `scaled` applies a function to the links' bandwidths.
    """
    classes = _classes(cluster, scaled)
    if len(classes) == 1:
        yield _parameter("links", classes[0], lambda section, to: scaled(section, lambda _: to))
    elif len(classes) <= MOST_CLASSES:
        for value in classes:
            yield _parameter(f"links of {value / 1e9:.4g} GB/s", value, _class_changed(value, scaled))
    else:
        yield _parameter("the slowest link, all in proportion", classes[0], _all_changed(scaled))


def _classes(cluster: ClusterSpec, scaled: Scaled) -> list[float]:
    """Bandwidths that differ by more than rounding, ascending."""
    sizes: set[float] = set()

    def recorded(value: float) -> float:
        sizes.add(value)
        return value

    scaled(cluster, recorded)
    classes: list[float] = []
    for value in sorted(sizes):
        if not classes or not isclose(value, classes[-1], rel_tol=AGREEMENT):
            classes.append(value)
    return classes


def _class_changed(value: float, scaled: Scaled) -> Change:
    return lambda cluster, to: scaled(cluster, lambda each: to if isclose(each, value, rel_tol=AGREEMENT) else each)


def _all_changed(scaled: Scaled) -> Change:
    def changed(cluster: ClusterSpec, to: float) -> ClusterSpec:
        slowest = _classes(cluster, scaled)[0]
        return scaled(cluster, lambda each: each * (to / slowest))

    return changed


def _graph_scaled(cluster: ClusterSpec, known: Registry, scale: Scale) -> ClusterSpec:
    network = imported(cluster, known, None)
    assert isinstance(network, LinkGraph)
    changed = numpy.array([scale(each) for each in network.bandwidth.tolist()])
    return evolve(cluster, topology=written_graph(evolve(network, bandwidth=changed)))


def _matrix_scaled(cluster: ClusterSpec, scale: Scale) -> ClusterSpec:
    matrix = cluster.topology
    assert isinstance(matrix, MatrixSpec)
    rows = [list(row) for row in matrix.bandwidth]
    for value, (one, two) in _entries(matrix):
        rows[one][two] = BytesPerSecond(scale(value))
    return evolve(cluster, topology=evolve(matrix, bandwidth=tuple(map(tuple, rows))))


def _entries(matrix: MatrixSpec) -> Iterator[tuple[float, tuple[int, int]]]:
    """Bandwidths between two devices, with their places; without the diagonal."""
    for one, row in enumerate(matrix.bandwidth):
        for two, value in enumerate(row):
            if one != two and value is not None:
                yield value, (one, two)


def parameters(problem: Problem, known: Registry) -> tuple[Parameter, ...]:
    """Parameters of a self-contained problem, in the order of tables.

    * the bandwidth of each level that messages cross, or of each class of equal links (`nest.whatif.parameters`);
    * the memory of a device, with the reserve;
    * the peak of a device's matrix products, scaled for all number formats; its value is the one of the training
      precision. Absent if a profile states the times;
    * the devices of the cluster: groups of its outermost level, if the network is given by levels;
    * the global batch.

    Latencies are absent: most come from a link, as part of its measured lines.

    Args:
        problem: its files read in (`nest.formulate.problem`).
        known: offers topology importers.

    Raises:
        InputError: its cluster cannot be used.
    """
    if problem.cluster.pools is not None:
        return tuple(_of_pools(problem, known))
    cluster, device = build_cluster(problem.cluster, known)
    varied = [*bandwidths(problem.cluster, known)]
    varied.append(Parameter("memory", cluster.device_memory, "bytes", with_memory, at_least=cluster.reserve))
    if problem.model is not None and device is not None:
        peak = matrix_peak(device, problem.training.precision)
        varied.append(Parameter("peak compute", peak, "FLOP/s", _with_peak))
    return (*varied, *_devices(problem.cluster), _global_batch(problem))


def _global_batch(problem: Problem) -> Parameter:
    return Parameter("global batch", problem.training.global_batch, "samples", _with_batch, multiple_of=1)


def _of_pools(problem: Problem, known: Registry) -> Iterator[Parameter]:
    """Parameters of each pool, the bandwidths between pools, and the global batch."""
    for index, pool in enumerate(problem.cluster.pools or ()):
        for each in parameters(_on_pool(problem, pool), known):
            if each.unit != "samples":
                changed = partial(_in_pool, index, each.change)
                yield evolve(each, name=f"{each.name} of pool {pool.name}", change=changed, pool=pool.name)
    for index, joint in enumerate(problem.cluster.between or ()):
        nominal = joint.bandwidth if joint.bandwidth is not None else link(str(joint.link)).bandwidth
        if nominal is not None:
            yield Parameter(f"bandwidth between {' and '.join(joint.pools)}", nominal, UNIT, partial(_between, index))
    yield _global_batch(problem)


def _on_pool(problem: Problem, pool: PoolSpec) -> Problem:
    """Problem with a pool as its cluster, to be changed but not solved."""
    profile = problem.profile
    if isinstance(profile, ProfileSpec):
        profile = evolve(profile, candidates=tuple(evolve(each, pool=None) for each in profile.candidates))
    return evolve(problem, cluster=pool.cluster, profile=profile, fixed=None)


def _in_pool(index: int, change: Callable[[Problem, float], Problem], problem: Problem, value: float) -> Problem:
    pools = problem.cluster.pools or ()
    changed = change(_on_pool(problem, pools[index]), value).cluster
    own = {key: getattr(changed, key) for key in ("levels", "memory", "device", "hosts", "devices_per_host")}
    pool = evolve(pools[index], **own)
    return evolve(problem, cluster=evolve(problem.cluster, pools=(*pools[:index], pool, *pools[index + 1 :])))


def _between(index: int, problem: Problem, value: float) -> Problem:
    between = problem.cluster.between or ()
    joint = evolve(between[index], bandwidth=BytesPerSecond(value))
    return evolve(problem, cluster=evolve(problem.cluster, between=(*between[:index], joint, *between[index + 1 :])))


PLENTY = 1024.0  # Factor over a device's memory that stands for any amount of it.


def with_memory(problem: Problem, value: float) -> Problem:
    """Problem on devices of so many bytes."""
    return evolve(problem, cluster=evolve(problem.cluster, memory=Bytes(value)))


def _with_peak(problem: Problem, value: float) -> Problem:
    device = _device(cluster := with_levels(problem.cluster))
    scale = value / matrix_peak(device, problem.training.precision)
    peaks = {name: None if peak is None else peak * scale for name, peak in asdict(device.peak).items()}
    return evolve(problem, cluster=evolve(cluster, device=evolve(device, peak=MatrixPeaks(**peaks))))


def _device(cluster: ClusterSpec) -> DeviceSpec:
    assert cluster.device is not None
    return described(cluster.device)


def _devices(cluster: ClusterSpec) -> Iterator[Parameter]:
    if levels := with_levels(cluster).levels:
        inside = prod(level.fanout for level in levels[:-1])
        yield Parameter("devices", inside * levels[-1].fanout, "devices", _with_devices, multiple_of=inside)


def _with_devices(problem: Problem, value: float) -> Problem:
    """Problem on so many devices: other groups of the outermost level, and no machine names.

    Candidates of a profile whose blocks no longer align are dropped.
    """
    cluster = with_levels(problem.cluster)
    levels = cluster.levels or ()
    size, inside = (prod(level.fanout for level in part) for part in (levels, levels[:-1]))
    outermost = evolve(levels[-1], fanout=int(value) // inside)
    each = (
        size // len(cluster.hosts) if cluster.hosts and cluster.devices_per_host is None else cluster.devices_per_host
    )
    changed = evolve(cluster, levels=(*levels[:-1], outermost), hosts=None, devices_per_host=each)
    profile = problem.profile
    if isinstance(profile, ProfileSpec):
        network = Cluster(network_levels(changed.levels or ()), memory=1.0)
        fitting = tuple(candidate for candidate in profile.candidates if network.admits(candidate.width))
        profile = evolve(profile, candidates=fitting or profile.candidates)
    return evolve(problem, cluster=changed, profile=profile)


def _with_batch(problem: Problem, value: float) -> Problem:
    """Problem with another global batch, without larger micro-batches."""
    batch = int(value)
    sizes, profile = problem.training.micro_batch, problem.profile
    if sizes is not None:
        sizes = tuple(size for size in sizes if size <= batch) or sizes
    if isinstance(profile, ProfileSpec):
        smaller = tuple(each for each in profile.candidates if each.samples <= batch)
        profile = evolve(profile, candidates=smaller or profile.candidates)
    training = evolve(problem.training, global_batch=batch, micro_batch=sizes)
    return evolve(problem, training=training, profile=profile)
