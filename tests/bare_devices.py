"""Devices all of whose memory holds tensors, for tests of what operators keep."""

from typing import Any

from attrs import evolve

from nest.catalogue import device
from nest.io import unstructure
from nest.spec import DeviceSpec, MemoryOverheads


def bare(name: str) -> DeviceSpec:
    """The device of the catalogue without what driver, libraries and allocator hold."""
    return evolve(device(name), memory_overheads=MemoryOverheads())


def unhurried(name: str) -> DeviceSpec:
    """The same with a host that launches in no time, so that operators of small models take what they do."""
    found = bare(name)
    return evolve(found, calibration=evolve(found.calibration, host_launch=0.0))


def written(name: str) -> dict[str, Any]:
    """The bare device, as a problem writes it in place."""
    found: dict[str, Any] = unstructure(bare(name))
    return found
