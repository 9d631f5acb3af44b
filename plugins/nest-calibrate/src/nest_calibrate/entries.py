"""Entries of the catalogue as TOML: calibrations, devices and links."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import asdict

from nest.catalogue import Calibration, Link
from nest.io.writing import toml_value
from nest.spec import DeviceSpec

FITTED = "lines: "
"""Begin of a source on the lines."""


def file_name(name: str) -> str:
    """The name of the file for what is called `name`: whatever could lead to another folder becomes a dash."""
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('.-') or 'device'}.toml"


def calibration_text(calibration: Calibration) -> str:
    """The file of the catalogue (`nest/library/calibrations`) that holds `calibration`, in TOML."""
    rows = [f"# {_one_line(calibration.name).capitalize()}: written by `nest calibrate devices`", ""]
    rows += listed("sources", calibration.sources)
    rows += _table("efficiency", calibration.efficiency)
    rows += _table("coefficients", asdict(calibration.coefficients))
    return "\n".join([*rows, *_table("sustained", calibration.sustained)]) + "\n"


def device_text(device: DeviceSpec) -> str:
    """A file that `cluster.device` of a problem may name, in TOML."""
    figures = asdict(device, recurse=False)
    rows = ["# Written by `nest calibrate devices`; name this file as `cluster.device` of a problem.", ""]
    plain = {key: value for key, value in figures.items() if isinstance(value, (int, float, str)) and value != ""}
    rows += [f"{key} = {toml_value(value)}" for key, value in plain.items()]
    rows += listed("engines", device.engines) + listed("sources", device.sources)
    rows += _table("peak", {key: value for key, value in asdict(device.peak).items() if value is not None})
    rows += _table("efficiency", device.efficiency)
    rows += _table("calibration", asdict(device.calibration))
    overheads = {key: value for key, value in asdict(device.memory_overheads).items() if value is not None}
    return "\n".join([*rows, *_table("memory_overheads", overheads)]) + "\n"


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    if not values:
        return []
    return ["", f"[{name}]", *(f"{_key(key)} = {toml_value(value)}" for key, value in values.items())]


def listed(name: str, values: Sequence[str]) -> list[str]:
    """The lines of a list of strings in TOML; none where it is empty."""
    return [f"{name} = [", *(f"    {toml_value(value)}," for value in values), "]"] if values else []


def _key(name: str) -> str:
    return name if re.fullmatch(r"\w+", name, re.ASCII) else toml_value(name)


def _one_line(name: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in name).split())


def link_text(link: Link) -> str:
    """The file of the catalogue that describes `link`, in TOML."""
    keys: tuple[str, ...] = ("description", "generations", "scale_up", "bandwidth", "latency", "efficiency")
    rows = [f"# {link.description or link.name}", "", *_pairs({key: getattr(link, key) for key in keys})]
    rows += listed("sources", link.sources)
    for line in link.lines:
        keys = ("protocol", "kinds", "base", "step", "efficiency", "own", "in_switch", "members")
        values = {key: getattr(line, key) for key in keys}
        unusual = {"own": line.own or None, "members": None if line.members == 2 else line.members}
        rows += ["", "[[lines]]", *_pairs(values | unusual)]
    return "\n".join(rows) + "\n"


def _pairs(values: Mapping[str, Any]) -> list[str]:
    """The lines of keys and values, empty ones left out."""
    present = {key: value for key, value in values.items() if value is not False and value not in (None, "", ())}
    return [f"{key} = {_written(value)}" for key, value in present.items()]


def _written(value: Any) -> str:
    """Numbers as written by hand: `300e9`, `6.3e-06`."""
    if isinstance(value, (str, bool, tuple)):
        return toml_value(value)
    if value >= 1e9 and value % 1e6 == 0:
        return f"{value / 1e9:g}e9"
    return f"{value:.12g}"
