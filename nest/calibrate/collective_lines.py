"""Measured collectives as JSON lines, nest's own format for measurements."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import field, fields, frozen

from nest.calibrate.measurement import Measurement
from nest.calibrate.nccl_tables import link_of
from nest.errors import InputError
from nest.files import structure
from nest.instance.collective_line import PHASES
from nest.spec.validators import above, at_least, each, every, not_empty
from nest.units import Bytes, BytesPerSecond, Seconds


@frozen
class WrittenCollective:
    """A line with `measurement: collective`, as far as a fit reads it.

    Attributes:
        kind: of collective.
        bytes: as PROBLEM.md section 1 counts them.
        members: devices; on several levels the members of each level's group, innermost first.
        seconds: of one call.
        link: of the catalogue, one for each level; left out: what joins devices of the name `device`.
        bandwidth: nominal bytes per second of each level; left out: the links' own.
        device: name of the devices.
        source: where it was read or measured; left out: the file.
    """

    kind: str
    bytes: Bytes = field(validator=above(0))
    members: tuple[int, ...] = field(validator=every(not_empty, each(at_least(1))))
    seconds: Seconds = field(validator=above(0))
    link: tuple[str, ...] | None = None
    bandwidth: tuple[BytesPerSecond, ...] | None = None
    device: str | None = None
    source: str | None = None


def read_lines(path: Path, text: str, link: str | None = None) -> Iterator[Measurement]:
    """The collectives among the measurements in `text`; lines of other measurements, and messages, are left out.

    Args:
        path: what `text` was read from, for reports and messages.
        text: one JSON document a line.
        link: of the catalogue, for lines that name neither a link nor a device that is known.

    Raises:
        InputError: a line is no measurement, or its link is not told.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            if not isinstance(content, Mapping):
                raise InputError("this is no measurement, which is a JSON object.")
            if content.get("measurement") == "collective" and content.get("kind") in PHASES:
                yield _measurement(path, content, link)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        except (ValueError, RecursionError):
            raise InputError(f"{path}, line {number}: this is no JSON; write one measurement a line.") from None


def _measurement(path: Path, content: Mapping[str, Any], link: str | None) -> Measurement:
    known = {each.name for each in fields(WrittenCollective)}
    row = structure(
        {key: value for key, value in content.items() if key in known and value is not None}, WrittenCollective
    )
    found = row.link or tuple(filter(None, [link or link_of(row.device or "")]))
    if len(found) != len(row.members):
        raise InputError(
            f"link names {len(found)} of {len(row.members)} levels; name each, innermost first, or one with --link."
        )
    bandwidths = row.bandwidth or (None,) * len(found)
    if len(bandwidths) != len(found):
        raise InputError(f"bandwidth has {len(bandwidths)} figures for {len(found)} links; give one for each.")
    return Measurement(row.source or path.name, row.kind, row.bytes, row.members, row.seconds, found, bandwidths)
