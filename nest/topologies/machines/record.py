"""One machine as its file describes it."""

from collections.abc import Mapping

from attrs import field, frozen

from nest.spec import TierSpec


@frozen
class Fabric:
    """The kind of direct links between the devices: NVLink, or Infinity Fabric (XGMI).

    Attributes:
        label: for people, such as `NVLink`.
        link: name of the link in the catalogue that says how much of it messages reach.
        rate: nominal bytes per second and direction of one link.
    """

    label: str
    link: str
    rate: float


@frozen
class Bus:
    """A path of PCI Express, or between the processors of a machine.

    Attributes:
        one: a device by its name, or a bridge or processor.
        two: likewise.
        bandwidth: bytes per second and direction that messages reach.
    """

    one: str
    two: str
    bandwidth: float


@frozen
class Machine:
    """Devices and everything that joins them.

    Attributes:
        devices: their names, in the order in which frameworks count them.
        fabric: the kind of `bundles` and `switched`; None: the file has none of both.
        bundles: direct links of two devices, by their places in `devices`, the smaller first.
        switched: for devices at a switch of the fabric, by their places, the number of the switch and their links to
            it.
        buses: PCI Express and processors; may be left out where direct links join all devices.
        assumed_of_buses: what `buses` rest on and the file does not say, one sentence each.
        complete: whether the file says of every link that joins the devices; if not, there may be direct links.
        usual_link: link of the catalogue that joins such devices in a machine; None: it is not known what they are.
        hosts: for each device, the number of its machine, where a file has several that share a fabric; empty: one.
        device: the accelerator by its name in the catalogue; None: the file does not say, or the catalogue has none.
        adapters: the network adapters' share of each device; None: the file has no rates.
    """

    devices: tuple[str, ...]
    fabric: Fabric | None = None
    bundles: Mapping[tuple[int, int], int] = field(factory=dict)
    switched: Mapping[int, tuple[int, int]] = field(factory=dict)
    buses: tuple[Bus, ...] = ()
    assumed_of_buses: tuple[str, ...] = ()
    complete: bool = True
    usual_link: str | None = None
    hosts: tuple[int, ...] = ()
    device: str | None = None
    adapters: TierSpec | None = None

    @property
    def devices_per_host(self) -> int | None:
        """Devices of one machine; None: the machines of the file have not equally many, side by side."""
        count = self.hosts.count(self.hosts[0]) if self.hosts else len(self.devices)
        even = all(len(set(self.hosts[at : at + count])) == 1 for at in range(0, len(self.hosts), count))
        return count if even and len(self.devices) % count == 0 else None
