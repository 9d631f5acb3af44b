"""What the network adapters of a machine give each of its devices."""

from collections import Counter
from collections.abc import Sequence

from nest.spec import TierSpec
from nest.topologies.machines.buses import USUAL_WIDTH, pci_nominal, pci_rate
from nest.topologies.machines.products import AMAZON
from nest.topologies.machines.system import Attributes, Place, hexadecimal
from nest.units import BytesPerSecond

MEGABIT = 1e6 / 8
"""Bytes: `speed` is in Mbit/s (NVIDIA/nccl@5067397 src/graph/topo.cc, `ncclTopoAddNet`)."""

FASTEST = 1_600_000
"""Mbit/s of the fastest port there is (1.6 Tbit/s Ethernet, IEEE 802.3dj): a higher `speed` is in kbit/s, as
libraries for some adapters give it."""

INFINIBAND_CLASS = "0x0207"
"""PCI class of InfiniBand controllers (PCI Code and ID Assignment Specification 1.11, section 1.3)."""


def adapter_share(
    adapters: Sequence[tuple[Place, Attributes]], devices: Sequence[int], told: list[str]
) -> TierSpec | None:
    """The adapters' nominal bandwidth per device and direction, and their link; None: no adapter has a rate.

    Adapters slower than the fastest are for management. An adapter carries no more than its slot, whose ports share it.

    Args:
        adapters: where each `net` hangs, with its attributes.
        devices: of each accelerator, the number of its host.
        told: sentences on what was assumed are added to it.
    """
    rates: dict[tuple[int, str], tuple[float, Place, str]] = {}
    for place, net in adapters:
        rate = _rate(net, told)
        if rate is not None:
            key = (place.host, net.get("dev") or net.get("name", ""))  # Sockets are listed at every processor.
            rates.setdefault(key, (rate, place, net.get("name", "adapter")))
    if not rates:
        return None
    fastest = max(rate for rate, _, _ in rates.values())
    slower = sorted({f"{name!r:.40}" for rate, _, name in rates.values() if rate < fastest})
    if slower:
        told.append(f"adapters slower than the fastest are taken to be for management: {', '.join(slower)}.")
    slots: dict[tuple[int, str], float] = {}
    used = [(place, name) for rate, place, name in rates.values() if rate == fastest]
    for number, (place, _) in enumerate(used):
        slot = (place.host, f"port {number}" if place.pci is None else place.pci.get("busid", ""))
        slots[slot] = min(slots.get(slot, 0.0) + fastest, _slot(place))
    sums: Counter[int] = Counter()
    for (host, _), rate in slots.items():
        sums[host] += round(rate)
    share = min(sums[host] / count for host, count in Counter(devices).items())
    return TierSpec(_link(*used[0]), BytesPerSecond(share)) if share else None


def _rate(net: Attributes, told: list[str]) -> float | None:
    """Bytes per second and direction of an adapter; None: it has no rate, or does not take part."""
    try:
        speed = float(net.get("speed", ""))
    except ValueError:
        return None
    if not 0 < speed < 1e12 or net.get("net") == "0":  # Some adapters give -1.
        return None
    if speed > FASTEST:
        sentence = f"adapter speeds of {speed:.0f} are taken to be in kbit/s: no adapter has {speed / 1e6:g} Tbit/s."
        if sentence not in told:
            told.append(sentence)
        speed /= 1e3
    return speed * MEGABIT if speed <= FASTEST else None


def _slot(place: Place) -> float:
    """Bytes per second and direction of an adapter's PCI Express; unlimited where the file does not say."""
    pci = place.pci or {}
    rate, width = pci_rate(pci.get("link_speed", "")), pci.get("link_width", "")
    if rate is None:
        return float("inf")
    return pci_nominal(rate, int(width) if width.isdecimal() and 0 < int(width) <= 32 else USUAL_WIDTH)


def _link(place: Place, name: str) -> str:
    """The kind of link in the catalogue.

    By vendor, PCI class, or the prefix that rdma-core gives names by the kind of port (linux-rdma/rdma-core,
    kernel-boot/rdma_rename.c): `ibp`, `rocep`, and `rdmap` where it is neither, as of Amazon's.
    """
    pci = place.pci or {}
    if hexadecimal(pci.get("vendor", "")) == AMAZON or name.startswith(("rdmap", "efa")):
        return "efa"
    if name.startswith("ibp"):
        return "infiniband"
    return "infiniband" if pci.get("class", "").startswith(INFINIBAND_CLASS) else "ethernet"
