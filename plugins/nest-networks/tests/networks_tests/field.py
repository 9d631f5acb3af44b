"""Files of the field as importers get them."""

import json
from pathlib import Path
from typing import Any

from nest.catalogue import network_levels
from nest.hooks.registry import Registry
from nest.instance import Level
from nest.io import read_mapping
from nest.network import pairs, reduce
from nest.network.graph import LinkGraph
from nest.network.imported import Imported
from nest.spec import LevelSpec, LinkProfile

REGISTRY = Registry()


def imported(source: Any, profile: LinkProfile | None = None) -> Imported:
    """What the only importer that knows `source` makes of it; a path that none knows is read first."""
    importers = REGISTRY.topology_importers().values()
    knowing = [each for each in importers if each.accepts(source)]
    if not knowing and isinstance(source, Path):
        source = read_mapping(source).mapping
        knowing = [each for each in importers if each.accepts(source)]
    assert len(knowing) == 1, [each.name for each in knowing]
    loader: Any = knowing[0]
    found = loader.load(source, profile) if getattr(loader, "profiled", False) else loader.load(source)
    return found if isinstance(found, Imported) else Imported(found)


def read(folder: Path, content: Any, profile: LinkProfile | None = None, name: str = "printed") -> Imported:
    """Write a file, of text or of what becomes JSON, and import it."""
    path = folder / name
    path.write_bytes((content if isinstance(content, str) else json.dumps(content)).encode())
    return imported(path, profile)


def level(found: Imported) -> LevelSpec:
    """The only level that a file has."""
    assert isinstance(found.network, tuple)
    (one,) = found.network
    return one


def levels(found: Imported) -> list[tuple[int, float]]:
    """Fan-out and nominal bandwidth of the levels that a file has."""
    assert isinstance(found.network, tuple)
    return [(each.fanout, float(each.bandwidth or 0)) for each in found.network]


def reduced(found: Imported) -> tuple[Level, ...]:
    """The levels in numbers, of a graph those it is reduced to."""
    network = found.network
    if isinstance(network, tuple):
        return network_levels(network)
    assert isinstance(network, LinkGraph)
    return reduce(pairs(network)).best.levels


def told(found: Imported) -> str:
    """All assumptions, in one text."""
    return "\n".join(found.assumptions)
