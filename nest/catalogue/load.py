"""Reading the data files of `nest/library`: TOML, one entry a file, named after it, read once."""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from nest.catalogue.entries import (
    Calibration,
    ClusterEntry,
    LibraryModel,
    Link,
    LinkLine,
    Optimizer,
    Precision,
    TimeSpread,
)
from nest.catalogue.names import unknown_name
from nest.instance import EstimateError
from nest.io import structure
from nest.spec import (
    Coefficients,
    DeviceSpec,
    LevelSpec,
    LinkProfile,
    MatrixPeaks,
    MemoryOverheads,
    StackSpec,
    TierSpec,
)

Entry = TypeVar("Entry")


def _entries(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and content of each file of a folder, by name."""
    found = files("nest.library").joinpath(folder).iterdir()
    texts = {
        entry.name.removesuffix(".toml"): entry.read_text(encoding="utf-8")
        for entry in found
        if entry.name.endswith(".toml")
    }
    for name in sorted(texts):
        written = tomllib.loads(texts[name])
        content = {key: tuple(value) if isinstance(value, list) else value for key, value in written.items()}
        yield name, content


@cache
def published_devices() -> dict[str, DeviceSpec]:
    """Every device as its published figures describe it, by name."""
    return {
        name: DeviceSpec(
            name=name,
            peak=MatrixPeaks(**content.pop("peak")),
            memory_overheads=MemoryOverheads(**content.pop("memory_overheads", {})),
            **content,
        )
        for name, content in _entries("devices")
    }


@cache
def estimate_error() -> EstimateError:
    """How far what plans need of memory lies from the estimate, as `nest calibrate memory` found it."""
    written = tomllib.loads(files("nest.library").joinpath("memory_error.toml").read_text(encoding="utf-8"))
    return EstimateError(median=written["median"], spread=written["spread"])


@cache
def time_spread(generation: str = "") -> TimeSpread:
    """How far step times lie from those predicted, as published runs of sources left out of the fit tell.

    Args:
        generation: of the devices; that of which least is known stands for those of which nothing is.
    """
    written = tomllib.loads(files("nest.library").joinpath("time_spread.toml").read_text(encoding="utf-8"))
    known = {name: TimeSpread(**each, apart=written["apart"]) for name, each in written["generations"].items()}
    return known.get(generation) or max(known.values(), key=lambda each: each.stranger.spread)


@cache
def calibrations() -> dict[str, Calibration]:
    """What is known of each generation of devices from measured runs, by its name."""
    return {
        name: Calibration(name=name, coefficients=Coefficients(**content.pop("coefficients", {})), **content)
        for name, content in _entries("calibrations")
    }


@cache
def devices() -> dict[str, DeviceSpec]:
    """Every device, calibrated where its generation is, by name."""
    known = calibrations()
    return {
        name: known[device.generation].on(device) if device.generation in known else device
        for name, device in published_devices().items()
    }


@cache
def links() -> dict[str, Link]:
    """Every kind of link, by name."""
    return {name: link_entry(name, content) for name, content in _entries("links")}


def link_entry(name: str, content: Mapping[str, Any]) -> Link:
    """The link that a file of the catalogue describes."""
    figures: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in content.items()}
    lines = tuple(LinkLine(**{**line, "kinds": tuple(line["kinds"])}) for line in figures.pop("lines", ()))
    return Link(name=name, lines=lines, **figures)


@cache
def clusters() -> dict[str, ClusterEntry]:
    """Every cluster, by name."""
    return {
        name: ClusterEntry(name=name, levels=tuple(LevelSpec(**level) for level in content.pop("levels")), **content)
        for name, content in _entries("clusters")
    }


@cache
def profiles() -> dict[str, LinkProfile]:
    """Every link profile, by name."""
    return {name: _profile(name, content) for name, content in _entries("profiles")}


def _profile(name: str, content: dict[str, Any]) -> LinkProfile:
    for key in ("host", "domain"):
        if key in content:
            content[key] = TierSpec(**content[key])
    tiers = tuple(TierSpec(**tier) for tier in content.pop("tiers"))
    return LinkProfile(name=name, tiers=tiers, **content)


@cache
def precisions() -> dict[str, Precision]:
    """Every training precision, by name."""
    return {
        name: Precision(
            name=name, products=tuple(content.pop("products")), other=tuple(content.pop("other")), **content
        )
        for name, content in _entries("precisions")
    }


@cache
def stacks() -> dict[str, StackSpec]:
    """Every software stack that nest brings, by name; `Registry.stacks` also has those of plug-ins."""
    return {name: structure({"name": name, **content}, StackSpec) for name, content in _entries("stacks")}


@cache
def optimizers() -> dict[str, Optimizer]:
    """Every optimizer, by name."""
    return {name: Optimizer(name=name, **content) for name, content in _entries("optimizers")}


@cache
def library_models() -> dict[str, LibraryModel]:
    """Every named model, by name."""
    return {name: LibraryModel(name, content["sources"], content["config"]) for name, content in _entries("models")}


def device(name: str, place: str = "cluster.device") -> DeviceSpec:
    """The device called `name`.

    Raises:
        InputError: there is none; the text names `place`.
    """
    return _named(devices(), name, "device", place, "Any other is given by its figures in place of a name.")


def link(name: str, place: str = "cluster.levels") -> Link:
    """The link called `name`.

    Raises:
        InputError: there is none; the text names `place`.
    """
    return _named(links(), name, "link", place)


def profile(name: str, place: str = "cluster.link_profile") -> LinkProfile:
    """The link profile called `name`.

    Raises:
        InputError: there is none; the text names `place`.
    """
    return _named(profiles(), name, "link profile", place)


def precision(name: str, place: str = "training.precision") -> Precision:
    """The precision called `name`.

    Raises:
        InputError: there is none; the text names `place`.
    """
    return _named(precisions(), name, "precision", place)


def optimizer(name: str, place: str = "training.optimizer") -> Optimizer:
    """The optimizer called `name`.

    Raises:
        InputError: there is none; the text names `place`.
    """
    return _named(optimizers(), name, "optimizer", place)


def _named(known: dict[str, Entry], name: str, kind: str, place: str, otherwise: str = "") -> Entry:
    if name not in known:
        raise unknown_name(place, kind, name, known, otherwise=otherwise)
    return known[name]
