"""Network read from a file of the field, with its other content and gaps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attrs import field, frozen

from nest.instance.cluster import Cluster
from nest.spec import BetweenSpec, LevelSpec, PoolSpec, TierSpec

if TYPE_CHECKING:
    from nest.instance.pairs import Pairs
    from nest.network.graph import LinkGraph


@frozen(eq=False)
class Imported:
    """A network read from a file.

    Attributes:
        network: by levels, links or pairs. Levels of a `cluster` section keep the names of their links, and with them
            the protocols of collectives. Devices of a network by links are called `HOST.INDEX`, or as in a file without
            hosts.
        hosts: names of the machines along the devices of a network by levels, with equally many devices; empty:
            unnamed.
        device: name of the accelerator in the catalogue; None: not in the file.
        assumptions: on gaps of the file: one sentence each, with figure and origin.
        devices_per_host: accelerators of one machine; None: not in the file.
        nics: of one machine, nominal bandwidth of its NICs per device and direction, and link; None: not in the file.
        pools: with several kinds of accelerators, the hosts of each kind; `network` then has no levels.
        between: links between the pools.
    """

    network: Cluster | LinkGraph | Pairs | tuple[LevelSpec, ...]
    hosts: tuple[str, ...] = ()
    device: str | None = None
    assumptions: tuple[str, ...] = ()
    devices_per_host: int | None = None
    nics: TierSpec | None = field(default=None, alias="adapters")  # As plug-ins' importers write it.
    pools: tuple[PoolSpec, ...] = ()
    between: tuple[BetweenSpec, ...] = ()


@frozen
class PartOf:
    """One of several networks in a file, or a part of one: `FILE#NAME`.

    Attributes:
        path: of the file.
        name: of the part, such as a topology or a switch.
    """

    path: Path
    name: str
