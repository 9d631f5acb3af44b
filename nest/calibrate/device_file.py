"""Calibrations and calibrated devices as text."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import asdict

from nest.catalogue import Calibration
from nest.spec import DeviceSpec


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
    rows += [f"{key} = {_value(value)}" for key, value in plain.items()]
    rows += listed("engines", device.engines) + listed("sources", device.sources)
    rows += _table("peak", {key: value for key, value in asdict(device.peak).items() if value is not None})
    rows += _table("efficiency", device.efficiency)
    rows += _table("calibration", asdict(device.calibration))
    overheads = {key: value for key, value in asdict(device.memory_overheads).items() if value is not None}
    return "\n".join([*rows, *_table("memory_overheads", overheads)]) + "\n"


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    if not values:
        return []
    return ["", f"[{name}]", *(f"{_key(key)} = {_value(value)}" for key, value in values.items())]


def listed(name: str, values: Sequence[str]) -> list[str]:
    """The lines of a list of strings in TOML; none where it is empty."""
    return [f"{name} = [", *(f"    {_value(value)}," for value in values), "]"] if values else []


def _key(name: str) -> str:
    return name if re.fullmatch(r"\w+", name, re.ASCII) else _value(name)


def _value(value: float | str) -> str:
    if isinstance(value, str):
        # The strings of TOML are those of JSON, but for the one control character that JSON leaves alone.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"{value!r}"


def _one_line(name: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in name).split())
