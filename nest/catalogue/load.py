"""The catalogue by name: data files of `nest/library`, read once, and levels of networks by their links.

Files are TOML, one entry a file, named after it.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from math import isclose, prod
from pathlib import Path
from typing import Any, TypeVar

from attrs import evolve

from nest.catalogue.entries import Calibration, ClusterEntry, LibraryModel, Link, Optimizer, Precision, TimeSpread
from nest.errors import InputError
from nest.instance import CollectiveLine, EstimateError, Level
from nest.io import structure
from nest.io.names import any_of, meant, near, plain
from nest.spec.cluster import LevelSpec, LinkProfile
from nest.spec.device import DeviceSpec
from nest.spec.training import StackSpec
from nest.tolerances import AGREEMENT
from nest.units import first_names

Entry = TypeVar("Entry")

LIBRARY = Path(__file__).parents[1] / "library"
"""Folder of the data files; finding it with `importlib.resources` takes 2 % of solving a small problem."""

KINDS = {
    "clusters": ("cluster", "cluster.name"),
    "devices": ("device", "cluster.device"),
    "links": ("link", "link of a level"),
    "models": ("model", "model"),
    "optimizers": ("optimizer", "training.optimizer"),
    "precisions": ("precision", "training.precision"),
    "profiles": ("link profile", "cluster.link_profile"),
    "stacks": ("software stack", "training.stack"),
}
"""Folders of the catalogue, their entries, and where such a name is written."""


@cache
def _names(folder: str) -> tuple[str, ...]:
    folder_entries = LIBRARY.joinpath(folder).iterdir()
    return tuple(sorted(each.name.removesuffix(".toml") for each in folder_entries if each.name.endswith(".toml")))


def _content(path: str) -> dict[str, Any]:
    return tomllib.loads(LIBRARY.joinpath(f"{path}.toml").read_text(encoding="utf-8"))


class Entries(Mapping[str, Entry]):
    """The entries of a folder, by name, each read on demand."""

    def __init__(self, folder: str, read: Callable[[str], Entry]) -> None:
        self._names, self._read, self._known = dict.fromkeys(_names(folder)), read, dict[str, Entry]()

    def __getitem__(self, name: str) -> Entry:
        if name not in self._known:
            if name not in self._names:
                raise KeyError(name)
            self._known[name] = self._read(name)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _entries(folder: str, kind: type[Entry]) -> Mapping[str, Entry]:
    return Entries(folder, lambda name: entry(name, _content(f"{folder}/{name}"), kind))


def entry(name: str, content: Mapping[str, Any], kind: type[Entry]) -> Entry:
    """Return the entry of `kind` described by the content of a file of the catalogue.

    Whole numbers at its top stay whole, as commands print them.
    """
    record = structure({"name": name, **content}, kind)
    whole: dict[str, Any] = {key: value for key, value in content.items() if type(value) is int}
    return evolve(record, **whole)  # type: ignore[misc]


@cache
def published_devices() -> Mapping[str, DeviceSpec]:
    """Return every device by name, with its published figures."""
    return _entries("devices", DeviceSpec)


@cache
def estimate_error(stack: str | None = None) -> EstimateError:
    """Return the error of memory estimates found by `nest calibrate memory`: of `stack`, where it has one."""
    written = _content("memory_error")
    row = written.get("stacks", {}).get(stack, written)
    return EstimateError(median=row["median"], spread=row["spread"])


@cache
def time_spread(generation: str = "", *, calibrated: bool = False, experts: bool = False) -> TimeSpread:
    """The spread of step times around predictions, from published runs of sources left out of the fit.

    Args:
        generation: of the devices.
        calibrated: of another generation, whether their coefficients come from measurements.
        experts: whether the model has experts, whose spread counts where it is wider.
    """
    written = _content("time_spread")
    known: Mapping[str, Mapping[str, float]] = written["generations"]
    rows = [known[generation]] if generation in known else list(known.values()) if calibrated else []
    rows = [*rows, written["experts"]] if rows and experts else rows or [written["uncalibrated"]]
    return max((TimeSpread(**row, apart=written["apart"]) for row in rows), key=lambda each: each.stranger.spread)


@cache
def calibrations() -> Mapping[str, Calibration]:
    """Return the calibration of each generation of devices, by name."""
    return _entries("calibrations", Calibration)


@cache
def devices() -> Mapping[str, DeviceSpec]:
    """Return every device by name, calibrated if its generation is."""
    return Entries("devices", _calibrated)


def _calibrated(name: str) -> DeviceSpec:
    device, known = published_devices()[name], calibrations()
    return known[device.generation].on(device) if device.generation in known else device


@cache
def links() -> Mapping[str, Link]:
    """Return every kind of link, by name."""
    return _entries("links", Link)


@cache
def clusters() -> Mapping[str, ClusterEntry]:
    """Return every cluster, by name."""
    return _entries("clusters", ClusterEntry)


@cache
def profiles() -> Mapping[str, LinkProfile]:
    """Return every link profile, by name."""
    return _entries("profiles", LinkProfile)


@cache
def precisions() -> Mapping[str, Precision]:
    """Return every training precision, by name."""
    return _entries("precisions", Precision)


@cache
def stacks() -> Mapping[str, StackSpec]:
    """Return every software stack that nest brings, by name; `Registry.stacks` also has those of plug-ins."""
    return _entries("stacks", StackSpec)


@cache
def optimizers() -> Mapping[str, Optimizer]:
    """Return every optimizer, by name."""
    return _entries("optimizers", Optimizer)


@cache
def library_models() -> Mapping[str, LibraryModel]:
    """Return every named model, by name."""
    return Entries("models", lambda name: entry(name, _model(name), LibraryModel))


def _model(name: str) -> dict[str, Any]:
    """Return the content of a model's file; `like` names another whose configuration is its default.

    TOML has no null, which is written as a word.
    """
    content = _content(f"models/{name}")
    like, config = content.pop("like", None), content.get("config", {})
    whole = {**({} if like is None else _model(like)["config"]), **config}
    return {**content, "config": {key: None if value == "null" else value for key, value in whole.items()}}


def device(name: str, place: str = "cluster.device") -> DeviceSpec:
    """Return the device called `name`; without one, the `InputError` names `place`."""
    return _named(devices(), name, "device", place, "For any other device, write its figures in place of the name.")


def two_vendors(one: DeviceSpec | None, other: DeviceSpec | None) -> bool:
    """Return whether two devices are of different known vendors: no library of collectives joins them."""
    return bool(one and other and one.vendor and other.vendor and one.vendor != other.vendor)


def link(name: str, place: str = "cluster.levels") -> Link:
    """Return the link called `name`; without one, the `InputError` names `place`."""
    return _named(links(), name, "link", place)


def profile(name: str, place: str = "cluster.link_profile") -> LinkProfile:
    """Return the link profile called `name`; without one, the `InputError` names `place`."""
    return _named(profiles(), name, "link profile", place)


def precision(name: str) -> Precision:
    """Return the precision called `name`; without one, the `InputError` names `training.precision`."""
    return _named(precisions(), name, "precision", "training.precision")


def optimizer(name: str) -> Optimizer:
    """Return the optimizer called `name`; without one, the `InputError` names `training.optimizer`."""
    return _named(optimizers(), name, "optimizer", "training.optimizer")


def _named(known: Mapping[str, Entry], name: str, kind: str, place: str, otherwise: str = "") -> Entry:
    if name not in known:
        raise unknown_name(place, kind, name, known, otherwise=otherwise)
    return known[name]


def network_levels(levels: Sequence[LevelSpec], place: str = "cluster.levels") -> tuple[Level, ...]:
    """Return the levels in numbers.

    A level with a link reaches the link's share of its bandwidth, and takes missing latency and bandwidth from it, and
    its protocols of collectives; with a stated latency, collectives follow PROBLEM.md section 1. A level without a link
    is taken as written, with latency 0 by default.

    Raises:
        InputError: a link is unknown, or a level has no bandwidth.
    """
    return tuple(_level(level, index, f"{place}[{index}]") for index, level in enumerate(levels))


def _level(level: LevelSpec, index: int, place: str) -> Level:
    bandwidth: float | None = level.bandwidth
    latency: float | None = level.latency
    lines: tuple[CollectiveLine, ...] = ()
    if level.link is not None:
        kind = link(level.link, f"{place}.link")
        nominal = kind.bandwidth if bandwidth is None else bandwidth
        if nominal is not None:
            kind = _generation(kind, nominal)
            bandwidth = nominal * kind.efficiency
            lines = tuple(line.on(nominal) for line in kind.lines) if latency is None else ()
        latency = kind.latency if latency is None else latency
    if bandwidth is None:
        raise InputError(
            f"{place}.bandwidth is missing; give it (`bandwidth: 50 GB/s`), or a link with a bandwidth, such as "
            "`nvlink4`."
        )
    name = level.name or f"level {index}"
    return Level(name, level.fanout, bandwidth, 0.0 if latency is None else latency, level.link, lines)


def _generation(kind: Link, bandwidth: float) -> Link:
    """Return the member of a family of links with this bandwidth, else the family."""
    members = (link(name) for name in kind.generations)
    return next(
        (each for each in members if each.bandwidth and isclose(each.bandwidth, bandwidth, rel_tol=AGREEMENT)), kind
    )


def scale_up_levels(levels: Sequence[Level]) -> int:
    """Return the number of levels, from the innermost outwards, in the scale-up network.

    Without named links, that is only the innermost level.
    """
    count = 0
    for index, level in enumerate(levels):
        if not (index == 0 if level.link is None else link(level.link).scale_up):
            break
        count += 1
    return count


def named_cluster(name: str, place: str = "cluster") -> ClusterEntry:
    """Return the cluster called `name`; `name-N` is the same network with `N` devices.

    Raises:
        InputError: there is none, or its network cannot have `N` devices.
    """
    known = clusters()
    if name in known:
        return known[name]
    family, _, size = name.rpartition("-")
    if family not in known or not size.isdecimal() or len(size) > 9:
        raise unknown_name(place, "cluster", name, known)
    levels = _resized(known[family].levels, int(size))
    if levels is None:
        fanouts = [level.fanout for level in known[family].levels]
        sizes = [prod(fanouts[: index + 1]) for index in range(len(fanouts) - 1)] or [1]
        steps = [*(f"of {one} up to {two}" for one, two in pairwise(sizes)), f"of {sizes[-1]}"]
        raise InputError(f"{place}: {family!r} cannot have {size} devices; use a multiple {' or '.join(steps)}.")
    described = f"{size} devices of the {known[family].description}"
    return evolve(known[family], name=name, description=described, levels=levels)


def enlarged(name: str, devices: int) -> str:
    """Return the name of as many machines of a cloud's type as have so many devices; `name` of any other cluster."""
    levels = clusters()[name].levels if name in clusters() else ()
    machine = prod(level.fanout for level in levels)
    rented = len(levels) > 1 and levels[-1].fanout == 1 and devices > machine
    return f"{name}-{-(-devices // machine) * machine}" if rented else name


def known_cluster(name: str | None) -> ClusterEntry | None:
    """Return a cluster as `named_cluster`; None: unknown."""
    known = clusters()
    if name not in known and (name or "").rpartition("-")[0] not in known:
        return None  # The error would search for the meant name, which takes longer.
    try:
        return named_cluster(name or "")
    except InputError:
        return None


def _resized(levels: Sequence[LevelSpec], devices: int) -> tuple[LevelSpec, ...] | None:
    """Return `levels` for another number of devices: inner groups stay whole, the outermost needed is resized."""
    below = 1
    for index, level in enumerate(levels):
        if devices <= below * level.fanout or index == len(levels) - 1:
            if devices < 1 or devices % below:
                return None
            return (*levels[:index], evolve(level, fanout=devices // below))
        below *= level.fanout
    return None


MOST_LISTED = 24
"""Most names in a sentence."""


def unknown_name(
    place: str, kind: str, name: str, known: Iterable[str], value: object = None, otherwise: str = ""
) -> InputError:
    """Return the error for an unknown `name` at `place`, with its probable meaning or all known names.

    Args:
        place: such as `cluster.device`.
        kind: of the named entry, such as `device`; `name`: something to compute with.
        known: possible names.
        value: written under the name.
        otherwise: remedy if the name is no slip.
    """
    options = sorted(known)
    short_name = name if len(name) <= 60 else name[:57] + "..."
    sentence = f"{place}: there is no {kind} called {short_name!r}."
    other, close = meant(name, options), near(name, options)
    if other is not None:
        meaning = other.name if kind == "name" and not other.section else None
        hint = f"write `{meaning}`" if meaning else other.remedy(value)
        return InputError(f"{sentence} {hint[0].upper()}{hint[1:]}.")
    elsewhere = None if close else _of_another_kind(name, kind)
    if elsewhere is not None:
        return InputError(f"{sentence} {elsewhere}")
    hint = f" Did you mean {any_of(map(repr, close))}?" if close else ""
    listed = f" Known: {first_names(options, MOST_LISTED)}." if options else " None is known."
    return InputError(f"{sentence}{hint}{listed}{f' {otherwise}' if otherwise and not close else ''}")


def _of_another_kind(name: str, kind: str) -> str | None:
    """Return the entry of another kind that a name resembles, and where that is written; None: none."""
    matches = {folder: near(name, _names(folder)) for folder, (what, _) in KINDS.items() if what not in kind}
    for same in (True, False):
        for folder, close in matches.items():
            what, where = KINDS[folder]
            if close and (plain(close[0]) == plain(name)) is same:
                start = f"It is a {what}" if same else f"Did you mean the {what} {any_of(map(repr, close))}"
                return f"{start}; write it under `{where}`." if same else f"{start}? It belongs under `{where}`."
    return None
