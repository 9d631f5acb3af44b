"""What an importer reads in a file of the field: a network, with what else the file says and what it leaves out."""

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
    """A network read from a file that people have.

    Attributes:
        network: by its levels, its links or its pairs. Levels as a `cluster` section writes them keep the names of
            their links, and with them how collectives run there. The devices of a network by links are called
            `HOST.INDEX`, or whatever the file calls them where it knows no hosts.
        hosts: names of the machines along the devices of a network by levels, all with equally many devices; empty:
            the file names none.
        device: the accelerator by its name in the catalogue; None: the file does not say.
        assumptions: what the file does not say and where it was taken from: one sentence each, with the figure.
        devices_per_host: accelerators of one machine; None: the file does not say.
        nics: of one machine, what its NICs give each device to reach other machines: nominal bandwidth per direction
            and link; None: the file does not say.
        pools: where hosts have accelerators of several kinds, the hosts of each kind; `network` then has no levels.
        between: what joins the pools.
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
    """One of several networks in a file, or a part of one: what `FILE#NAME` stands for.

    Attributes:
        path: of the file.
        name: of the part, such as a topology or a switch.
    """

    path: Path
    name: str
