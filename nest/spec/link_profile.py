"""What files of switches and hosts do not say: the links of each tier, and what is inside a host."""

from attrs import field, frozen

from nest.spec.validators import above, at_least
from nest.units import BytesPerSecond, Seconds


@frozen
class TierSpec:
    """The links of one tier of a network.

    Attributes:
        link: name of a link in the catalogue, which gives what is left out.
        bandwidth: bytes per second, per device and direction; None: the link's.
        latency: seconds from end to end between two devices that meet in this tier; None: the link's.
        oversubscription: bandwidth downwards over bandwidth upwards of its switches, where the file does not count
            links; 1 is none.
    """

    link: str | None = None
    bandwidth: BytesPerSecond | None = field(default=None, validator=above(0))
    latency: Seconds | None = field(default=None, validator=at_least(0))
    oversubscription: float = field(default=1.0, validator=at_least(1))


@frozen
class LinkProfile:
    """Figures for networks whose files have none.

    Attributes:
        name: as `nest topology profiles` lists it; None: it is in a file of its own.
        description: one line.
        device: the accelerator by its name in the catalogue; None: the problem says.
        devices_per_host: accelerators of one host; None: those of the usual profile.
        host: links between the accelerators of one host; None: those of the usual profile.
        domain: links between the accelerators of several hosts in one NVLink domain, such as a rack; None: there are no
            such links, hosts of a domain are joined by the network only.
        tiers: of the network, that of the hosts' leaf switches first; the last serves all further ones; empty: those of
            the usual profile.
        sources: where each figure was read.
    """

    name: str | None = None
    description: str = ""
    device: str | None = None
    devices_per_host: int | None = field(default=None, validator=at_least(1))
    host: TierSpec | None = None
    domain: TierSpec | None = None
    tiers: tuple[TierSpec, ...] = ()
    sources: tuple[str, ...] = ()
