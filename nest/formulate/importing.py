"""Files of networks: which importer reads one, and the link profile and number of hosts that complete it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from attrs import evolve

from nest.catalogue import device, link, profile, unknown_name
from nest.errors import InputError, InputErrors, PlacedErrors
from nest.hooks.protocols import ProfiledImporter, TopologyImporter
from nest.hooks.registry import Registry
from nest.instance import Cluster
from nest.instance.pairs import Pairs
from nest.io import is_file_name, placed, read, structure_source, there_is
from nest.io.source import SUFFIXES, parse, read_text_of
from nest.network import LinkGraph, pairs, reduce
from nest.network.imported import Imported, PartOf
from nest.spec import ClusterSpec, LevelSpec, LinkProfile, TierSpec
from nest.spec.topology import GENERATORS, Generated
from nest.units import BytesPerSecond, Seconds

PLACE = "cluster.topology"

Source = str | Generated | dict[str, Any]
Network = Cluster | LinkGraph | Pairs | tuple[LevelSpec, ...]


def imported(
    cluster: ClusterSpec, registry: Registry, base: Path | None, name: str | None = None
) -> Network | Imported:
    """What the importer called `name`, or the first that knows it, makes of the `topology` of `cluster`.

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
            registry.credit("topology_importers", importer.name)
            return _load_with(importer, file, cluster, base)
        if isinstance(file, PartOf):
            raise InputError(f"no importer reads a part {file.name!r:.60} of this file; leave `#{file.name:.60}` out.")
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
    """As `imported`, of a source that is no file."""
    importer = importer_of(source, registry, name)
    if importer is None:
        raise _unknown(source, registry)
    registry.credit("topology_importers", importer.name)
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


def importer_of(source: Any, registry: Registry, name: str | None = None) -> TopologyImporter | None:
    """The importer called `name`, or the first, if it knows `source`; None: it does not."""
    known = registry.topology_importers()
    if name is not None and name not in known:
        raise unknown_name("--format", "topology importer", name, known)
    asked = known.values() if name is None else [known[name]]
    return next((each for each in asked if each.accepts(source)), None)


def file_of(source: Source | None, base: Path | None) -> Path | PartOf | None:
    """The file `source` names, or the part of one (`FILE#NAME`); None: it names none."""
    if not isinstance(source, str):
        return None
    path = (base or Path()) / source
    if there_is(path):
        return path
    file, mark, part = source.rpartition("#")
    path = (base or Path()) / file
    return PartOf(path, part) if mark and file and part and there_is(path) else None


def read_content(path: Path, registry: Registry) -> Generated | dict[str, Any]:
    """The topology that a YAML, JSON or TOML file holds."""
    text = read_text_of(path)
    try:
        source = parse(text, str(path))
    except InputError:
        if path.suffix.lower() in SUFFIXES:
            raise
        importers = ", ".join(registry.topology_importers())
        raise InputError(
            f"no importer knows this file, and it is no YAML, JSON or TOML. Importers: {importers}."
        ) from None
    found: Generated | dict[str, Any] = structure_source(source, Generated | dict[str, Any])  # type: ignore[arg-type]
    return found


def _unknown(source: Any, registry: Registry) -> InputError:
    """The error for a source that no importer knows."""
    importers = ", ".join(registry.topology_importers())
    if isinstance(source, Mapping):
        words = [*GENERATORS, "nodes"]
        near = next((found[0] for key in source if (found := get_close_matches(str(key), words, n=1))), None)
        hint = f" Did you mean {near!r}?" if near else ""
        if set(source) == {"cluster"}:
            return InputError(
                "this is a whole `cluster` section; name the file as `cluster: FILE`, without `topology`."
            )
        told = ", ".join(map(str, source)) or "nothing"
        known = f"Known: {', '.join(GENERATORS)}, and graphs with `nodes`."
        return InputError(f"no network is described by {told:.80}.{hint} {known}")
    return InputError(
        f"no importer knows {source!r:.200}. Importers: {importers}; a file must exist, relative to the problem."
    )


@contextmanager
def named(path: Path | None) -> Iterator[None]:
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


def given_profile(cluster: ClusterSpec, base: Path | None) -> LinkProfile | None:
    """What `cluster` says of links, accelerators and hosts that a file may leave out; None: nothing.

    Its own `device` and `devices_per_host` win over the profile's.
    """
    found = _profile(cluster.link_profile, base)
    if found is not None:
        _check_names(found, cluster, base)
    if isinstance(cluster.device, str) and not is_file_name(cluster.device):
        found = evolve(found or LinkProfile(), device=cluster.device)
    if cluster.devices_per_host is not None:
        found = evolve(found or LinkProfile(), devices_per_host=cluster.devices_per_host)
    return found


def _profile(written: str | LinkProfile | None, base: Path | None) -> LinkProfile | None:
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


def _check_names(found: LinkProfile, cluster: ClusterSpec, base: Path | None) -> None:
    """Refuse links and devices that are not known here, where they are written, not in what is made of them."""
    written = cluster.link_profile
    file = (base or Path()) / written if isinstance(written, str) and is_file_name(written) else None
    place = "cluster.link_profile." if file is None else f"{file}: "
    tiers = [("host", found.host), ("domain", found.domain)]
    tiers += [(f"tiers[{index}]", tier) for index, tier in enumerate(found.tiers)]
    try:
        for key, tier in tiers:
            if tier is not None and tier.link is not None:
                link(tier.link, f"{place}{key}.link")
        if found.device is not None and cluster.device is None and not is_file_name(found.device):
            device(found.device, f"{place}device")
    except InputError as error:
        raise error if file is None else PlacedErrors([str(error)]) from None


FABRIC = "fabric"
"""Name of the level between machines."""


def cluster_of(machine: Imported, hosts: int, tier: TierSpec | None = None) -> Imported:
    """The cluster of `hosts` machines like `machine`, which a network that blocks nothing joins.

    Its outermost level is what the NICs of a machine give each device; where its file does not say how fast these are,
    `tier` does.

    Raises:
        InputError: nobody says how fast they are, there are no hosts, or the file has a network of its own.
    """
    if hosts < 1:
        raise InputError(f"there must be at least one host, not {hosts}.")
    if hosts == 1:
        return machine
    if machine.hosts or machine.devices_per_host is None:
        raise InputError(f"the file does not describe one machine, of which there could be {hosts}.")
    levels, told = _levels(machine)
    between = machine.nics or tier
    if between is None:
        raise InputError(
            "the file does not say how fast the network adapters are; name a link profile, whose first tier says."
        )
    bandwidth = _bandwidth(between)
    told.append(
        f"{hosts} such machines are joined by a network that blocks nothing, at {bandwidth / 1e9:g} GB/s per device "
        f"and direction, {'the sum of its adapters' if machine.nics else 'as the link profile has it'}."
    )
    return evolve(
        machine,
        network=(*levels, LevelSpec(hosts, BytesPerSecond(bandwidth), between.latency, FABRIC, between.link)),
        hosts=(),
        assumptions=(*machine.assumptions, *told),
        adapters=None,
    )


def _bandwidth(tier: TierSpec) -> float:
    """Nominal bytes per second, per device and direction."""
    nominal = tier.bandwidth
    if nominal is None and tier.link is not None:
        nominal = BytesPerSecond(link(tier.link, "tiers[0].link").bandwidth or 0.0)
    if not nominal:
        raise InputError("tiers[0].bandwidth is missing in the link profile; give it in bytes per second.")
    return nominal / tier.oversubscription


def _levels(machine: Imported) -> tuple[tuple[LevelSpec, ...], list[str]]:
    """The levels of one machine, and what was assumed to have them."""
    network = machine.network
    if isinstance(network, tuple):
        return network, []
    told = []
    if isinstance(network, Cluster):
        found = network.levels
    else:
        reduced = reduce(pairs(network) if isinstance(network, LinkGraph) else network)
        found = reduced.best.levels
        if reduced.names != reduced.pairs.names:
            told.append(f"along the levels the devices of a machine are {', '.join(reduced.names)}.")
        if not reduced.best.exact:
            told.append(
                f"levels are on average {reduced.best.stretch.mean:.2f} times as slow as the pairs of a machine."
            )
    written = (
        LevelSpec(level.fanout, BytesPerSecond(level.bandwidth), Seconds(level.latency), level.name) for level in found
    )
    return tuple(written), told
