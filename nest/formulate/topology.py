"""From what `cluster.topology` says to a network reduced to levels."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import evolve
from numpy.typing import NDArray

from nest.catalogue import named_cluster, network_levels
from nest.errors import InputError, InputErrors
from nest.files import placed, read_mapping, structure_source
from nest.hooks.protocols import TopologyImporter
from nest.hooks.registry import Registry
from nest.instance import Cluster
from nest.instance.pairs import Pairs
from nest.network import REFERENCE_MESSAGE, LinkGraph, Reduced, pairs, reduce
from nest.network.graph_spec import written_graph
from nest.network.imported import Imported
from nest.spec import ClusterSpec, LevelSpec
from nest.spec.topology import GENERATORS, Generated, MatrixSpec

PLACE = "cluster.topology"
KEPT = 1
"""Reductions remembered: reading, planning and describing a problem each ask for the same one."""

Source = str | Generated | dict[str, Any]
Network = Cluster | LinkGraph | Pairs


def topology(
    source: Source, registry: Registry, base: Path | None, message: float = REFERENCE_MESSAGE
) -> Cluster | Reduced:
    """The network that `source` stands for, reduced to levels; a `Cluster` where an importer gives one.

    Args:
        source: what `cluster.topology` says.
        registry: offers topology importers.
        base: folder that relative paths start from; None: the working directory.
        message: bytes of the message distortion is measured with.

    Raises:
        InputError: no importer knows it, or it cannot be used.
    """
    found = loaded(source, registry, base)
    if isinstance(found, Cluster):
        return found
    return _reduced(_Content(found), message)


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
    if spec.topology is not None:
        return topology(spec.topology, registry, base, message)
    levels = named_cluster(spec.name).levels if spec.name is not None else spec.levels
    return Cluster(network_levels(levels or ()), memory=1.0)


def in_place(cluster: ClusterSpec, registry: Registry, base: Path | None) -> ClusterSpec:
    """`cluster` with the file its `topology` names read into it; anything else as it is.

    Raises:
        InputError: the file cannot be read or used.
    """
    path = _file(cluster.topology, base)
    if path is None:
        return cluster
    importer = _importer(path, registry)
    if importer is None:
        content = _read(path)
        with _named(path):  # What is wrong with it is told while its file is known.
            _load(content, registry)
        return evolve(cluster, topology=content)
    with _named(path):
        network = _bare(importer.load(path))
    if isinstance(network, LinkGraph):
        return evolve(cluster, topology=written_graph(network))
    if isinstance(network, Pairs):
        matrix = MatrixSpec(
            bandwidth=tuple(map(tuple, network.bandwidth.tolist())),
            latency=tuple(map(tuple, network.latency.tolist())),
            names=network.names,
        )
        return evolve(cluster, topology=matrix)
    levels = tuple(LevelSpec(each.fanout, each.bandwidth, each.latency, each.name) for each in network.levels)  # type: ignore[arg-type]
    memory = network.memory if cluster.memory is None and cluster.device is None else cluster.memory
    return evolve(cluster, topology=None, levels=levels, memory=memory)  # type: ignore[arg-type]


def loaded(source: Source, registry: Registry, base: Path | None) -> Network:
    """What an importer makes of `source`.

    Raises:
        InputError: no importer knows it, or it cannot be used.
    """
    path = _file(source, base)
    if path is not None:
        importer = _importer(path, registry)
        with _named(path):
            return _bare(importer.load(path)) if importer else _load(_read(path), registry)
    with _named(None):
        return _load(source, registry)


def _load(source: Any, registry: Registry) -> Network:
    importer = _importer(source, registry)
    if importer is None:
        raise _unknown(source, registry)
    return _bare(importer.load(source))


def _bare(found: Network | Imported) -> Network:
    if not isinstance(found, Imported):
        return found
    if isinstance(found.network, tuple):
        return Cluster(network_levels(found.network), memory=1.0)
    return found.network


def _importer(source: Any, registry: Registry) -> TopologyImporter | None:
    return next((each for each in registry.topology_importers().values() if each.accepts(source)), None)


def _file(source: Source | None, base: Path | None) -> Path | None:
    """The file `source` names; None: it names none."""
    if not isinstance(source, str):
        return None
    path = (base or Path()) / source
    try:
        return path if path.exists() else None
    except (OSError, ValueError):  # No file can have such a name.
        return None


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
