"""From what `cluster.topology` says to a network reduced to levels.

`message` is the size in bytes that a reduction's distortion is measured with.
"""

from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import evolve, fields
from numpy.typing import NDArray

from nest.catalogue import named_cluster, network_levels
from nest.errors import InputError
from nest.formulate.importing import (
    Network,
    Source,
    cluster_of,
    file_of,
    given_profile,
    imported,
    importer_of,
    load_source,
    named,
    read_content,
)
from nest.hooks.registry import Registry
from nest.instance import Cluster
from nest.instance.pairs import Pairs
from nest.io import is_file_name, read, there_is
from nest.network import REFERENCE_MESSAGE, LinkGraph, Reduced, pairs, reduce
from nest.network.graph import written_graph
from nest.network.imported import Imported, PartOf
from nest.spec import ClusterOfFile, ClusterSpec, LevelSpec
from nest.spec.topology import MatrixSpec

KEPT = 1
"""Reductions remembered: reading, planning and describing a problem each ask for the same one."""


def topology(
    source: Source, registry: Registry, base: Path | None, message: float = REFERENCE_MESSAGE
) -> Cluster | Reduced:
    """The network that `source` stands for, reduced to levels; a `Cluster` where it has levels of its own."""
    found = loaded(source, registry, base)
    return found if isinstance(found, Cluster) else _reduced(_Content(found), message)


def loaded(source: Source, registry: Registry, base: Path | None) -> Cluster | LinkGraph | Pairs:
    """What an importer makes of `source`; of levels alone, a `Cluster` whose memory says nothing."""
    found = imported(ClusterSpec(topology=source), registry, base)
    network = found.network if isinstance(found, Imported) else found
    return Cluster(network_levels(network), memory=1.0) if isinstance(network, tuple) else network


def network(
    spec: ClusterSpec, registry: Registry, base: Path | None, message: float = REFERENCE_MESSAGE
) -> Cluster | Reduced:
    """The network of a `cluster` section; of one given by levels or by name, a `Cluster` whose memory says nothing."""
    spec, found = read_in(spec, registry, base, message)
    if found is not None:
        return found
    levels = named_cluster(spec.name).levels if spec.name is not None else spec.levels
    return Cluster(network_levels(levels or ()), memory=1.0)


def read_in(
    cluster: ClusterSpec, registry: Registry, base: Path | None, message: float = REFERENCE_MESSAGE
) -> tuple[ClusterSpec, Cluster | Reduced | None]:
    """`cluster` with what an importer read of hosts and devices, and its network; None: levels or a name say it."""
    cluster = section_of(cluster, registry, base)
    if cluster.topology is None:
        return cluster, None
    found = imported(cluster, registry, base)
    if isinstance(found, Imported):
        cluster = _with_imported(cluster, found, registry)
        found = found.network
    if isinstance(found, tuple):
        return cluster, None
    return cluster, found if isinstance(found, Cluster) else _reduced(_Content(found), message)


def in_place(cluster: ClusterSpec, registry: Registry, base: Path | None, importer: str | None = None) -> ClusterSpec:
    """`cluster` with the file its `topology` names read into it, by `importer` or the first that knows it.

    What the section says itself (`device`, `memory`, `hosts`, `devices_per_host`) wins over what the file says.
    """
    cluster = section_of(cluster, registry, base)
    file = file_of(cluster.topology, base)
    if file is None:
        return cluster
    if importer is None and isinstance(file, Path) and importer_of(file, registry) is None:
        with named(file):  # What is wrong with it is told while its file is known.
            content = read_content(file, registry)
            found = load_source(content, cluster, registry, base)
        if not isinstance(found, Imported):
            return evolve(cluster, topology=content)  # As written, which is shorter than its links.
    else:
        found = imported(cluster, registry, base, importer)
    if isinstance(found, Imported):
        return _with_imported(cluster, found, registry)
    return evolve(cluster, **_written(found, cluster))


def from_file(
    cluster: ClusterSpec, registry: Registry, base: Path | None, importer: str | None = None, hosts: int = 1
) -> ClusterSpec:
    """As `in_place`, of a `topology` that must be a file, and describe one machine where there are several `hosts`."""
    file = file_of(cluster.topology, base)
    if file is None:
        raise InputError(f"{cluster.topology}: there is no such file.")
    if hosts == 1:
        return in_place(cluster, registry, base, importer)
    found = imported(cluster, registry, base, importer)
    profile = given_profile(cluster, base)
    tier = profile.tiers[0] if profile is not None and profile.tiers else None
    with named(file.path if isinstance(file, PartOf) else file):
        machine = found if isinstance(found, Imported) else Imported(found)
        return _with_imported(cluster, cluster_of(machine, hosts, tier), registry)


def section_of(cluster: ClusterSpec, registry: Registry, base: Path | None) -> ClusterSpec:
    """`cluster`; where its `name` is that of a file, the section in it, with what `cluster` itself says beside it."""
    if cluster.name is not None and is_file_name(cluster.name):
        path = (base or Path()) / cluster.name
        if there_is(path) != "file":
            raise InputError(f"cluster: there is no file {str(path)!r:.200}; `nest clusters` lists the names known.")
        told = in_place(read(path, ClusterOfFile).cluster, registry, path.parent)
        own = {field.name: getattr(cluster, field.name) for field in fields(ClusterSpec) if field.name != "name"}
        cluster = evolve(told, **{key: value for key, value in own.items() if value})
    if cluster.link_profile is not None and cluster.topology is None:
        raise InputError(
            "cluster.link_profile completes a file that `topology` names; give one, or leave the profile out."
        )
    return cluster


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
        assumed=found.assumptions or None,
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
