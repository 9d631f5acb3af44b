"""Devices in their machines: the name of the host, and which of its accelerators it is."""

import re
from collections.abc import Sequence

from attrs import frozen

from nest.errors import InputError

_NAMED = re.compile(r"(.+)\.(\d{1,9})", re.DOTALL)
"""`HOST.INDEX`, as importers call the devices of a network by links (nest.network.imported)."""

_NUMBERED = re.compile(r"\d+(\.\d+)*")
"""Hosts of generated networks, which have numbers in place of names (docs/reference/topologies.md)."""


@frozen
class Seat:
    """A device in its machine.

    Attributes:
        node: name of the host.
        gpu: index of the accelerator on it, as the driver numbers them.
        named: whether somebody gave the host that name; otherwise it stands for one, by its number.
    """

    node: str
    gpu: int
    named: bool = True


def seats(devices: int, hosts: Sequence[str] = (), per_host: int | None = None, leaf: int = 1) -> tuple[Seat, ...]:
    """The seat of every device along the levels of a cluster: hosts one after the other, all with equally many.

    Args:
        devices: number of them.
        hosts: names of the machines; empty: `node0`, `node1`, ...
        per_host: accelerators of one machine; None: the devices shared out to `hosts`, or `leaf` without hosts.
        leaf: devices of an innermost group.

    Raises:
        InputError: the machines do not hold these devices.
    """
    each = per_host or (devices // len(hosts) if hosts else leaf) or 1
    if devices % each or (hosts and each * len(hosts) != devices):
        machines = f"{len(hosts)} hosts of {each}" if hosts else f"hosts of {each} accelerators"
        raise InputError(
            f"cluster.hosts: {machines} do not make the {devices} devices of the cluster; change hosts or "
            "devices_per_host."
        )
    names = hosts or [f"node{index}" for index in range(devices // each)]
    return tuple(Seat(names[device // each], device % each, bool(hosts)) for device in range(devices))


def named_seats(names: Sequence[str]) -> tuple[Seat, ...] | None:
    """The seats of devices called `HOST.INDEX`; None: not all are called so.

    Hosts that have but numbers, as in generated networks, are called `node` and their number.
    """
    found = [_NAMED.fullmatch(name) for name in names]
    if not all(found):
        return None
    given = not numbered(names)
    return tuple(Seat(_host(match[1]), int(match[2]), given) for match in found if match)


def numbered(names: Sequence[str]) -> bool:
    """Whether the devices called so have numbers for hosts, as in generated networks."""
    return all(_NUMBERED.fullmatch(name) for name in names)


def _host(name: str) -> str:
    return f"node{name.replace('.', '-')}" if _NUMBERED.fullmatch(name) else name
