"""Sources that importers are offered: models and networks of every kind nest reads, and things that are neither."""

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from nest.catalogue import clusters
from nest.io import unstructure
from nest.spec import TransformerSpec
from nest.spec.topology import DragonflySpec, FatTreeSpec, MatrixSpec, MeshSpec, RailOptimisedSpec, TorusSpec
from nest.testing.samples import SAMPLE_MODELS, loaded
from nest.units import BytesPerSecond

STRANGE: tuple[Any, ...] = (None, True, 7, 2.5, "", "no such thing", (), [], {}, {"model_type": 3}, Path("none"))
"""What an importer may be asked about and need not know."""

RATE = BytesPerSecond(5e10)
"""Bytes per second of every link of the sample networks, that of an InfiniBand NDR port (400 Gb/s)."""


@cache
def model_sources() -> tuple[Any, ...]:
    """A configuration of each family of the library, descriptions by widths, an operator graph, and one to repeat."""
    folder = files("nest").joinpath("library", "models")
    texts = sorted((entry.name, entry.read_text("utf-8")) for entry in folder.iterdir() if entry.name.endswith(".toml"))
    families: dict[str, Any] = {}
    for _, text in texts:
        config = tomllib.loads(text)["config"]
        families.setdefault(config["model_type"], config)
    described = [model.source for model in SAMPLE_MODELS if isinstance(model.source, TransformerSpec)]
    graph = unstructure(loaded(SAMPLE_MODELS[0]))
    return (*families.values(), *described, graph, {"graph": graph, "repeat": 3})


@cache
def topology_sources() -> tuple[Any, ...]:
    """A network of each kind: by its parameters, by measurements, as a graph, by name, and as files of other tools."""
    ring = [{"source": f"n{index}", "target": f"n{(index + 1) % 4}", "bandwidth": 5e10} for index in range(4)]
    return (
        next(iter(clusters())),
        TorusSpec((4, 4), RATE),
        MeshSpec((2, 4), RATE),
        DragonflySpec(2, 4, 2, RATE),
        RailOptimisedSpec(2, 4, BytesPerSecond(4.5e11), RATE),
        FatTreeSpec(RATE, k=4),
        MatrixSpec(tuple(tuple(None if i == j else RATE for j in range(4)) for i in range(4))),
        {"nodes": [{"id": f"n{index}"} for index in range(4)], "edges": ring},
        Path(str(files("nest.testing").joinpath("data", "ring.graphml"))),
        *sorted(Path(str(entry)) for entry in files("nest.testing").joinpath("data", "networks").iterdir()),
    )
