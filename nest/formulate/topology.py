"""From what `cluster.topology` says to a network reduced to levels."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from attrs import evolve
from numpy.typing import NDArray

from nest.catalogue import named_cluster, network_levels, unknown_name
from nest.errors import InputError, InputErrors
from nest.files import placed, read_mapping, structure_source
from nest.formulate.link_profile import given_profile
from nest.formulate.machines import cluster_of
from nest.hooks.protocols import ProfiledImporter, TopologyImporter
from nest.hooks.registry import Registry
from nest.instance import Cluster
from nest.instance.pairs import Pairs
from nest.network import REFERENCE_MESSAGE, LinkGraph, Reduced, pairs, reduce
from nest.network.graph_spec import written_graph
from nest.network.imported import Imported, PartOf
from nest.spec import ClusterSpec, LevelSpec
from nest.spec.topology import GENERATORS, Generated, MatrixSpec

PLACE = "cluster.topology"
KEPT = 1
"""Reductions remembered: reading, planning and describing a problem each ask for the same one."""

Source = str | Generated | dict[str, Any]
Network = Cluster | LinkGraph | Pairs | tuple[LevelSpec, ...]


def topology(
    source: Source, registry: Registry, base: Path | None, message: float = REFERENCE_MESSAGE
) -> Cluster | Reduced:
    """The network that `source` stands for, reduced to levels; a `Cluster` where it has levels of its own.

    Args:
        source: what `cluster.topology` says.
        registry: offers topology importers.
        base: folder that relative paths start from; None: the working directory.
        message: bytes of the message distortion is measured with.

    Raises:
        InputError: no importer knows it, or it cannot be used.
    """
    found = loaded(source, registry, base)
    return found if isinstance(found, Cluster) else _reduced(_Content(found), message)


def loaded(source: Source, registry: Registry, base: Path | None) -> Cluster | LinkGraph | Pairs:
    """What an importer makes of `source`; of levels alone, a `Cluster` whose memory says nothing.

    Raises:
        InputError: no importer knows it, or it cannot be used.
    """
    found = _loaded(ClusterSpec(topology=source), registry, base)
    network = found.network if isinstance(found, Imported) else found
    return Cluster(network_levels(network), memory=1.0) if isinstance(network, tuple) else network


def network(
    spec: ClusterSpec, registry: Registry, base: Path | None, message: float = REFERENCE_MESSAGE
) -> Cluster | Reduced:
    """The network of a `cluster` section; of one given by levels or by name, a `Cluster` whose memory says nothing.

    Args:
        spec: the section as written.
        registry: offers topology importers.
        base: folder that relative paths start from; None: the working directory.
        message: bytes of the message distortion is measured with.

    Raises:
        InputError: it cannot be used.
    """
    spec, found = read_in(spec, registry, base, message)
    if found is not None:
        return found
    levels = named_cluster(spec.name).levels if spec.name is not None else spec.levels
    return Cluster(network_levels(levels or ()), memory=1.0)


def read_in(
    cluster: ClusterSpec, registry: Registry, base: Path | None, message: float = REFERENCE_MESSAGE
) -> tuple[ClusterSpec, Cluster | Reduced | None]:
    """`cluster` with what an importer read of hosts and devices, and its network; None: levels or a name say it.

    Args:
        cluster: the section as written.
        registry: offers topology importers.
        base: folder that relative paths start from; None: the working directory.
        message: bytes of the message distortion is measured with.

    Raises:
        InputError: it cannot be used.
    """
    _check_profile(cluster)
    if cluster.topology is None:
        return cluster, None
    found = _loaded(cluster, registry, base)
    if isinstance(found, Imported):
        cluster = _with_imported(cluster, found, registry)
        found = found.network
    if isinstance(found, tuple):
        return cluster, None
    return cluster, found if isinstance(found, Cluster) else _reduced(_Content(found), message)


def in_place(cluster: ClusterSpec, registry: Registry, base: Path | None, importer: str | None = None) -> ClusterSpec:
    """`cluster` with the file its `topology` names read into it; anything else as it is.

    What the section says itself (`device`, `memory`, `hosts`, `devices_per_host`) wins over what the file says.

    Args:
        cluster: the section as written.
        registry: offers topology importers.
        base: folder that relative paths start from; None: the working directory.
        importer: name of the importer to read the file with; None: the first that knows it.

    Raises:
        InputError: the file cannot be read or used.
    """
    _check_profile(cluster)
    file = _file(cluster.topology, base)
    if file is None:
        return cluster
    if importer is None and isinstance(file, Path) and _importer(file, registry) is None:
        content = _read(file)
        with _named(file):  # What is wrong with it is told while its file is known.
            found = _load(content, cluster, registry, base)
        if not isinstance(found, Imported):
            return evolve(cluster, topology=content)  # As written, which is shorter than its links.
    else:
        found = _loaded(cluster, registry, base, importer)
    if isinstance(found, Imported):
        return _with_imported(cluster, found, registry)
    return evolve(cluster, **_written(found, cluster))


def from_file(
    cluster: ClusterSpec, registry: Registry, base: Path | None, importer: str | None = None, hosts: int = 1
) -> ClusterSpec:
    """As `in_place`, of a `topology` that must be a file.

    Args:
        cluster: the section as written.
        registry: offers topology importers.
        base: folder that relative paths start from; None: the working directory.
        importer: name of the importer to read the file with; None: the first that knows it.
        hosts: how many machines there are, where the file describes one.

    Raises:
        InputError: there is no such file, it cannot be used, or does not describe one machine where there are several.
    """
    file = _file(cluster.topology, base)
    if file is None:
        raise InputError(f"{cluster.topology}: there is no such file.")
    if hosts == 1:
        return in_place(cluster, registry, base, importer)
    found = _loaded(cluster, registry, base, importer)
    profile = given_profile(cluster, base)
    tier = profile.tiers[0] if profile is not None and profile.tiers else None
    with _named(file.path if isinstance(file, PartOf) else file):
        machine = found if isinstance(found, Imported) else Imported(found)
        return _with_imported(cluster, cluster_of(machine, hosts, tier), registry)


def _check_profile(cluster: ClusterSpec) -> None:
    if cluster.link_profile is not None and cluster.topology is None:
        raise InputError(
            "cluster.link_profile completes a file that `topology` names; give one, or leave the profile out."
        )


def _with_imported(cluster: ClusterSpec, found: Imported, registry: Registry) -> ClusterSpec:
    """`cluster` with what an importer read in its file."""
    hosts, per_host = found.hosts, cluster.devices_per_host or found.devices_per_host
    section = evolve(cluster, link_profile=None, **_written(found.network, cluster))
    if not hosts and found.devices_per_host is not None and isinstance(found.network, LinkGraph):
        hosts = _hosts_in_order(topology(section.topology, registry, None), found.devices_per_host)  # type: ignore[arg-type]
    return evolve(
        section,
        device=cluster.device or found.device,
        hosts=cluster.hosts or hosts or None,
        devices_per_host=per_host,
        assumed=found.assumptions,
    )


def _hosts_in_order(reduced: Cluster | Reduced, per_host: int) -> tuple[str, ...]:
    """The hosts along the devices `HOST.INDEX` of a reduced network; empty where its order takes one apart."""
    if not isinstance(reduced, Reduced):
        return ()
    names = [name.rpartition(".")[0] for name in reduced.names]
    hosts = tuple(names[::per_host])
    whole = all(name == hosts[place // per_host] for place, name in enumerate(names))
    return hosts if whole and len(set(hosts)) == len(hosts) and all(hosts) else ()


def _written(network: Network, cluster: ClusterSpec) -> dict[str, Any]:
    """A network as the keys of a `cluster` section."""
    if isinstance(network, LinkGraph):
        return {"topology": written_graph(network)}
    if isinstance(network, Pairs):
        matrix = MatrixSpec(
            bandwidth=tuple(map(tuple, network.bandwidth.tolist())),
            latency=tuple(map(tuple, network.latency.tolist())),
            names=network.names,
        )
        return {"topology": matrix}
    if isinstance(network, tuple):
        return {"topology": None, "levels": network}
    levels = tuple(LevelSpec(each.fanout, each.bandwidth, each.latency, each.name) for each in network.levels)  # type: ignore[arg-type]
    memory = network.memory if cluster.memory is None and cluster.device is None else cluster.memory
    return {"topology": None, "levels": levels, "memory": memory}


def _loaded(cluster: ClusterSpec, registry: Registry, base: Path | None, name: str | None = None) -> Network | Imported:
    """What an importer, that called `name` or the first which knows it, makes of the `topology` of `cluster`."""
    source = cluster.topology
    file = _file(source, base)
    if file is None:
        with _named(None):
            return _load(source, cluster, registry, base)
    path = file.path if isinstance(file, PartOf) else file
    with _named(path):
        importer = _called(name, registry) if name is not None else _importer(file, registry)
        if importer is not None:
            return _load_with(importer, file, cluster, base)
        if isinstance(file, PartOf):
            raise InputError(f"no importer reads a part {file.name!r:.60} of this file; leave `#{file.name:.60}` out.")
        return _load(_read(path), cluster, registry, base)


def _load(source: Any, cluster: ClusterSpec, registry: Registry, base: Path | None) -> Network | Imported:
    importer = _importer(source, registry)
    if importer is None:
        raise _unknown(source, registry)
    return _load_with(importer, source, cluster, base)


def _load_with(importer: TopologyImporter, source: Any, cluster: ClusterSpec, base: Path | None) -> Network | Imported:
    if getattr(importer, "profiled", False):
        profiled = cast("ProfiledImporter", importer)
        return profiled.load(source, given_profile(cluster, base))
    if cluster.link_profile is not None:
        raise InputError(
            f"cluster.link_profile is of no use here: the importer {importer.name!r} finds every figure in the source."
        )
    return importer.load(source)


def _called(name: str, registry: Registry) -> TopologyImporter:
    known = registry.topology_importers()
    if name not in known:
        raise unknown_name("--format", "topology importer", name, known)
    return known[name]


def _importer(source: Any, registry: Registry) -> TopologyImporter | None:
    return next((each for each in registry.topology_importers().values() if each.accepts(source)), None)


def _file(source: Source | None, base: Path | None) -> Path | PartOf | None:
    """The file `source` names, or the part of one (`FILE#NAME`); None: it names none."""
    if not isinstance(source, str):
        return None
    path = (base or Path()) / source
    if _exists(path):
        return path
    file, mark, part = source.rpartition("#")
    path = (base or Path()) / file
    return PartOf(path, part) if mark and file and part and _exists(path) else None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # No file can have such a name.
        return False


def _read(path: Path) -> Generated | dict[str, Any]:
    """The topology that a YAML, JSON or TOML file holds."""
    found: Generated | dict[str, Any] = structure_source(read_mapping(path), Generated | dict[str, Any])  # type: ignore[arg-type]
    return found


def _unknown(source: Any, registry: Registry) -> InputError:
    """The error for a source that no importer knows."""
    importers = ", ".join(registry.topology_importers())
    if isinstance(source, Mapping):
        words = [*GENERATORS, "nodes"]
        near = next((found[0] for key in source if (found := get_close_matches(str(key), words, n=1))), None)
        hint = f" Did you mean {near!r}?" if near else ""
        told = ", ".join(map(str, source)) or "nothing"
        known = f"Known: {', '.join(GENERATORS)}, and graphs with `nodes`."
        return InputError(f"no network is described by {told:.80}.{hint} {known}")
    return InputError(
        f"no importer knows {source!r:.200}. Importers: {importers}; a file must exist, relative to the problem."
    )


@contextmanager
def _named(path: Path | None) -> Iterator[None]:
    """Let errors name the file, or the key that holds the network."""
    try:
        yield
    except InputError as error:
        if path is not None:
            raise placed(path, error) from None
        told = error.problems if isinstance(error, InputErrors) else (str(error),)
        raise InputErrors(f"{PLACE}{'.' if _is_path(each) else ': '}{each}" for each in told) from None


def _is_path(sentence: str) -> bool:
    """Whether a sentence begins with the path of a value, such as `edges[3].bandwidth`."""
    first = sentence.split(" ", 1)[0]
    return "[" in first or "." in first.rstrip(".")


class _Content:
    """A network that equals another with the same content, for remembering what was made of it."""

    def __init__(self, network: LinkGraph | Pairs) -> None:
        self.network = network
        if isinstance(network, LinkGraph):
            told: tuple[object, ...] = ("links", network.names, network.shared)
            arrays: list[NDArray[Any]] = [network.devices, network.ends, network.bandwidth, network.latency]
        else:
            told = ("pairs", network.names)
            arrays = [network.bandwidth, network.latency]
        digest = sha256(repr(told).encode())
        for array in arrays:
            digest.update(array.tobytes())
        self._key = digest.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Content) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=KEPT)
def _reduced(content: _Content, message: float) -> Reduced:
    network = content.network
    return reduce(pairs(network) if isinstance(network, LinkGraph) else network, message)
