"""Networks: the importer of `cluster.topology`, and its reduction to levels.

`message` is the size in bytes of the message for which stretch is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attrs import evolve, fields
from numpy.typing import NDArray

from nest.catalogue import device, link, named_cluster, network_levels, profile, unknown_name
from nest.errors import InputError, InputErrors, PlacedErrors
from nest.hooks.protocols import ProfiledImporter, TopologyImporter
from nest.hooks.registry import Registry
from nest.instance import Cluster
from nest.io import is_file_name, placed, read, structure_source, there_is
from nest.io.source import SUFFIXES, parse, read_text_of
from nest.network.imported import Imported, PartOf
from nest.reuse import BoundedCache
from nest.spec import ClusterOfFile, ClusterSpec, LevelSpec, LinkProfile
from nest.spec.topology import GENERATORS, Generated, MatrixSpec

if TYPE_CHECKING:
    from nest.instance.pairs import Pairs
    from nest.network import LinkGraph, Reduced

    Network = Cluster | LinkGraph | Pairs | tuple[LevelSpec, ...]

PLACE = "cluster.topology"

SEVERAL_KINDS = "hosts have several device types; import them as pools with `nest topology import`."

Source = str | Generated | dict[str, Any]


def topology(source: Source, registry: Registry, base: Path | None) -> Cluster | Reduced:
    """Network of `source`, reduced to levels; a `Cluster` if it has levels of its own."""
    reduced = loaded(source, registry, base)
    return reduced if isinstance(reduced, Cluster) else reduced_network(reduced)


def loaded(source: Source, registry: Registry, base: Path | None) -> Cluster | LinkGraph | Pairs:
    """Import `source`; levels alone give a `Cluster` with undefined memory."""
    imported_network = imported(ClusterSpec(topology=source), registry, base)
    network = imported_network.network if isinstance(imported_network, Imported) else imported_network
    if isinstance(imported_network, Imported) and imported_network.pools:
        raise InputError(SEVERAL_KINDS)
    return Cluster(network_levels(network), memory=1.0) if isinstance(network, tuple) else network


def network(
    spec: ClusterSpec, registry: Registry, base: Path | None, message: float | None = None
) -> Cluster | Reduced:
    """Network of a `cluster` section; levels or a name give a `Cluster` with undefined memory."""
    spec, reduced = read_in(spec, registry, base, message)
    if reduced is not None:
        return reduced
    if spec.pools is not None:
        raise InputError(SEVERAL_KINDS)
    levels = named_cluster(spec.name).levels if spec.name is not None else spec.levels
    return Cluster(network_levels(levels or ()), memory=1.0)


def read_in(
    cluster: ClusterSpec, registry: Registry, base: Path | None, message: float | None = None
) -> tuple[ClusterSpec, Cluster | Reduced | None]:
    """`cluster` with imported hosts and devices, and its network; None: levels or a name give it."""
    cluster = section_of(cluster, registry, base)
    if cluster.topology is None:
        return cluster, None
    network = imported(cluster, registry, base)
    if isinstance(network, Imported):
        cluster = with_imported(cluster, network, registry)
        network = network.network
    if isinstance(network, tuple):
        return cluster, None
    return cluster, network if isinstance(network, Cluster) else reduced_network(network, message)


def in_place(cluster: ClusterSpec, registry: Registry, base: Path | None, importer: str | None = None) -> ClusterSpec:
    """Read the file of `topology` into `cluster`, with `importer` or the first that knows it.

    Keys of the section (`device`, `memory`, `hosts`, `devices_per_host`) win over the file.
    """
    cluster = section_of(cluster, registry, base)
    file = file_of(cluster.topology, base)
    if file is None:
        return cluster
    if importer is None and isinstance(file, Path) and importer_of(file, registry) is None:
        with named(file):  # Report mistakes with the file's name.
            content = read_content(file, registry)
            network = load_source(content, cluster, registry, base)
        if not isinstance(network, Imported):
            return evolve(cluster, topology=content)  # As written, which is shorter than its links.
    else:
        network = imported(cluster, registry, base, importer)
    if isinstance(network, Imported):
        return with_imported(cluster, network, registry)
    return evolve(cluster, **_written(network, cluster))


def section_of(cluster: ClusterSpec, registry: Registry, base: Path | None) -> ClusterSpec:
    """`cluster`, or the section in the file that its `name` gives, with the keys of `cluster` on top."""
    if cluster.name is not None and is_file_name(cluster.name):
        path = (base or Path()) / cluster.name
        if there_is(path) != "file":
            raise InputError(f"cluster: there is no file {str(path)!r:.200}; `nest clusters` lists the names known.")
        section = in_place(read(path, ClusterOfFile).cluster, registry, path.parent)
        own = {field.name: getattr(cluster, field.name) for field in fields(ClusterSpec) if field.name != "name"}
        cluster = evolve(section, **{key: value for key, value in own.items() if value})
    if cluster.link_profile is not None and cluster.topology is None:
        raise InputError("cluster.link_profile needs a `topology` file; add one, or leave the profile out.")
    return cluster


def with_imported(cluster: ClusterSpec, network: Imported, registry: Registry) -> ClusterSpec:
    """`cluster` with the content of an imported file."""
    from nest.network import LinkGraph

    if network.pools:
        return evolve(
            cluster,
            topology=None,
            link_profile=None,
            devices_per_host=None,
            pools=network.pools,
            between=network.between,
            assumed=network.assumptions or None,
        )
    hosts, per_host = network.hosts, cluster.devices_per_host or network.devices_per_host
    section = evolve(cluster, link_profile=None, **_written(network.network, cluster))
    if not hosts and network.devices_per_host is not None and isinstance(network.network, LinkGraph):
        hosts = _hosts_in_order(topology(section.topology, registry, None), network.devices_per_host)  # type: ignore[arg-type]
    return evolve(
        section,
        device=cluster.device or network.device,
        hosts=cluster.hosts or hosts or None,
        devices_per_host=per_host,
        assumed=network.assumptions or None,
    )


def _hosts_in_order(reduced: Cluster | Reduced, per_host: int) -> tuple[str, ...]:
    """Hosts along the devices `HOST.INDEX` of a reduced network; empty if its order splits one."""
    if isinstance(reduced, Cluster):
        return ()
    names = [name.rpartition(".")[0] for name in reduced.names]
    hosts = tuple(names[::per_host])
    whole = all(name == hosts[place // per_host] for place, name in enumerate(names))
    return hosts if whole and len(set(hosts)) == len(hosts) and all(hosts) else ()


def _written(network: Network, cluster: ClusterSpec) -> dict[str, Any]:
    """A network as keys of a `cluster` section."""
    from nest.instance.pairs import Pairs
    from nest.network.graph import LinkGraph, written_graph

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


def reduced_network(network: LinkGraph | Pairs, message: float | None = None) -> Reduced:
    """Reduce a network to levels, cached by content: reading, planning and describing need the same.

    `message`: bytes of the message for which stretch is measured; None: `nest.network.REFERENCE_MESSAGE`.
    """
    from nest.network import REFERENCE_MESSAGE, reduce

    size = REFERENCE_MESSAGE if message is None else message
    return _reductions.of((_digest(network), size), lambda: reduce(network, size))


_reductions = BoundedCache["Reduced"](1)  # The latest reduction, by content.


def _digest(network: LinkGraph | Pairs) -> bytes:
    """Digest of a network's content."""
    from nest.network import LinkGraph

    if isinstance(network, LinkGraph):
        content: tuple[object, ...] = ("links", network.names, network.shared)
        arrays: list[NDArray[Any]] = [network.devices, network.ends, network.bandwidth, network.latency]
    else:
        content, arrays = ("pairs", network.names), [network.bandwidth, network.latency]
    digest = sha256(repr(content).encode())
    for array in arrays:
        digest.update(array.tobytes())
    return digest.digest()


def imported(
    cluster: ClusterSpec, registry: Registry, base: Path | None, name: str | None = None
) -> Network | Imported:
    """Import the `topology` of `cluster` with the named importer, or the first that knows it.

    Raises:
        InputError: no importer knows it, or it cannot be used.
    """
    source = cluster.topology
    file = file_of(source, base)
    if file is None:
        with named(None):
            return load_source(source, cluster, registry, base)
    path = file.path if isinstance(file, PartOf) else file
    given_profile(cluster, base)  # What is wrong with it is not in the file.
    with named(path):
        importer = importer_of(file, registry, name)
        if importer is not None:
            registry.count_use("topology_importers", importer.name)
            return _load_with(importer, file, cluster, base)
        if isinstance(file, PartOf):
            raise InputError(f"no importer reads a part {file.name!r:.60} of this file; remove `#{file.name:.60}`.")
        stranger = InputError(
            f"the importer {name!r} does not know this file; leave --format out, or name another one."
        )
        if name is not None and importer_of(path, registry) is not None:
            raise stranger
        content = read_content(path, registry)
        if name is not None and importer_of(content, registry, name) is None:
            raise stranger
        return load_source(content, cluster, registry, base, name)


def load_source(
    source: Any, cluster: ClusterSpec, registry: Registry, base: Path | None, name: str | None = None
) -> Network | Imported:
    """Same as `imported`, for a source that is no file."""
    importer = importer_of(source, registry, name)
    if importer is None:
        raise _unknown(source, registry)
    registry.count_use("topology_importers", importer.name)
    return _load_with(importer, source, cluster, base)


def _load_with(importer: TopologyImporter, source: Any, cluster: ClusterSpec, base: Path | None) -> Network | Imported:
    if getattr(importer, "profiled", False):
        profiled, given = cast("ProfiledImporter", importer), given_profile(cluster, base)
        if given is not None and given.tier_labels and not getattr(importer, "labelled", False):
            raise InputError(f"the importer {importer.name!r} reads no labels; leave `tier_labels` out.")
        return profiled.load(source, given)
    if cluster.link_profile is not None:
        raise InputError(f"cluster.link_profile: the importer {importer.name!r} needs no profile; leave it out.")
    return importer.load(source)


def importer_of(source: Any, registry: Registry, name: str | None = None) -> TopologyImporter | None:
    """The named importer, or the first, if it knows `source`; else None."""
    known = registry.topology_importers()
    if name is not None and name not in known:
        raise unknown_name("--format", "topology importer", name, known)
    importers = known.values() if name is None else [known[name]]
    return next((each for each in importers if each.accepts(source)), None)


def file_of(source: Source | None, base: Path | None) -> Path | PartOf | None:
    """File that `source` names, or a part of one (`FILE#NAME`); None: it names none."""
    if not isinstance(source, str):
        return None
    path = (base or Path()) / source
    if there_is(path):
        return path
    file, mark, part = source.rpartition("#")
    path = (base or Path()) / file
    return PartOf(path, part) if mark and file and part and there_is(path) else None


def read_content(path: Path, registry: Registry) -> Generated | dict[str, Any]:
    """Topology in a YAML, JSON or TOML file."""
    text = read_text_of(path)
    try:
        source = parse(text, str(path))
    except InputError:
        if path.suffix.lower() in SUFFIXES or text.lstrip()[:1] in ("", "{"):
            raise
        importers = ", ".join(registry.topology_importers())
        raise InputError(
            f"no importer knows this file, and it is not YAML, JSON or TOML. Importers: {importers}."
        ) from None
    content: Generated | dict[str, Any] = structure_source(source, Generated | dict[str, Any])  # type: ignore[arg-type]
    return content


def _unknown(source: Any, registry: Registry) -> InputError:
    """Error for a source that no importer knows."""
    importers = ", ".join(registry.topology_importers())
    if isinstance(source, Mapping):
        words = [*GENERATORS, "nodes"]
        near = next((close[0] for key in source if (close := get_close_matches(str(key), words, n=1))), None)
        hint = f" Did you mean {near!r}?" if near else ""
        if set(source) == {"cluster"}:
            return InputError(
                "this is a whole `cluster` section; name the file as `cluster: FILE`, without `topology`."
            )
        keys = ", ".join(map(str, source)) or "nothing"
        known = f"Known: {', '.join(GENERATORS)}, and graphs with `nodes`."
        return InputError(f"no network is described by {keys:.80}.{hint} {known}")
    return InputError(
        f"no importer knows {source!r:.200}. Importers: {importers}; a file must exist, relative to the problem."
    )


@contextmanager
def named(path: Path | None) -> Iterator[None]:
    """Let errors name the file, or the key with the network."""
    try:
        yield
    except InputError as error:
        if path is not None:
            raise placed(path, error) from None
        sentences = error.problems if isinstance(error, InputErrors) else (str(error),)
        raise InputErrors(f"{PLACE}{'.' if _is_path(each) else ': '}{each}" for each in sentences) from None


def _is_path(sentence: str) -> bool:
    """True if a sentence begins with the path of a value, such as `edges[3].bandwidth`."""
    first = sentence.split(" ", 1)[0]
    return "[" in first or "." in first.rstrip(".")


def given_profile(cluster: ClusterSpec, base: Path | None) -> LinkProfile | None:
    """Links, accelerators and hosts in `cluster` that a file may leave out; None: none.

    Its own `device` and `devices_per_host` win over the profile's.
    """
    link_profile = link_profile_of(cluster, base)
    if link_profile is not None:
        _check_names(link_profile, cluster, base)
    if isinstance(cluster.device, str) and not is_file_name(cluster.device):
        link_profile = evolve(link_profile or LinkProfile(), device=cluster.device)
    if cluster.devices_per_host is not None:
        link_profile = evolve(link_profile or LinkProfile(), devices_per_host=cluster.devices_per_host)
    return link_profile


def link_profile_of(cluster: ClusterSpec, base: Path | None = None) -> LinkProfile | None:
    """The link profile that `cluster` gives, or names; None: none."""
    written = cluster.link_profile
    if written is None or isinstance(written, LinkProfile):
        return written
    if not is_file_name(written):
        return profile(written)
    path = (base or Path()) / written
    if not there_is(path):
        raise InputError(
            f"cluster.link_profile: there is no file {str(path)!r:.200}; `nest topology profiles` lists the names "
            "known."
        )
    return read(path, LinkProfile)


def _check_names(link_profile: LinkProfile, cluster: ClusterSpec, base: Path | None) -> None:
    """Refuse unknown links and devices at the place where they are written."""
    written = cluster.link_profile
    file = (base or Path()) / written if isinstance(written, str) and is_file_name(written) else None
    place = "cluster.link_profile." if file is None else f"{file}: "
    tiers = [("host", link_profile.host), ("domain", link_profile.domain)]
    tiers += [(f"tiers[{index}]", tier) for index, tier in enumerate(link_profile.tiers)]
    try:
        for key, tier in tiers:
            if tier is not None and tier.link is not None:
                link(tier.link, f"{place}{key}.link")
        if link_profile.device is not None and cluster.device is None and not is_file_name(link_profile.device):
            device(link_profile.device, f"{place}device")
    except InputError as error:
        raise error if file is None else PlacedErrors([str(error)]) from None
