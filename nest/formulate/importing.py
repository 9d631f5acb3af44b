"""Which importer reads what `cluster.topology` says, and what it makes of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from nest.catalogue import unknown_name
from nest.errors import InputError, InputErrors
from nest.files import placed, structure_source, there_is
from nest.files.source import SUFFIXES, parse, read_text_of
from nest.formulate.link_profile import given_profile
from nest.hooks.protocols import ProfiledImporter, TopologyImporter
from nest.hooks.registry import Registry
from nest.instance import Cluster
from nest.instance.pairs import Pairs
from nest.network import LinkGraph
from nest.network.imported import Imported, PartOf
from nest.spec import ClusterSpec, LevelSpec
from nest.spec.topology import GENERATORS, Generated

PLACE = "cluster.topology"

Source = str | Generated | dict[str, Any]
Network = Cluster | LinkGraph | Pairs | tuple[LevelSpec, ...]


def imported(
    cluster: ClusterSpec, registry: Registry, base: Path | None, name: str | None = None
) -> Network | Imported:
    """What an importer makes of the `topology` of `cluster`.

    Args:
        cluster: the section as written.
        registry: offers topology importers.
        base: folder that relative paths start from; None: the working directory.
        name: of the importer to read a file with; None: the first that knows it.

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
    """As `imported`, of a source that is no file.

    Raises:
        InputError: no importer knows it, or it cannot be used.
    """
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
    """The importer called `name`, or the first, if it knows `source`; None: it does not.

    Raises:
        InputError: there is no importer called `name`.
    """
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
    """The topology that a YAML, JSON or TOML file holds.

    Raises:
        InputError: it holds none.
    """
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
