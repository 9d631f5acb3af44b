"""Bandwidth of PCI Express, and of the links between the processors of a machine."""

import re
from collections.abc import Mapping

from nest.topologies.machines.products import reached

PCI_LINK = "pcie4"
"""Link of the catalogue that says how much of PCI Express messages reach, of any generation, and how long they take."""

ENCODINGS: tuple[tuple[float, float], ...] = ((5.0, 8 / 10), (32.0, 128 / 130), (64.0, 242 / 256))
"""Up to which rate in GT/s, the share of bits that is data: PCI Express Base Specification 6.0, 8b/10b up to 5 GT/s,
128b/130b up to 32 GT/s, 242 of the 256 bytes of a flit at 64 GT/s."""

USUAL_RATE, USUAL_WIDTH = 8.0, 16
"""GT/s and lanes where a file has none, as NCCL takes them (NVIDIA/nccl@5067397 src/graph/topo.cc, `kvDictPciGen` and
`ncclTopoAddPci`)."""

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*GT/s", re.IGNORECASE)

POWER, ARM, AMD, ZHAOXIN = 32e9, 6e9, 16e9, 6e9
INTEL = ((0xCF, 40e9), (0x8F, 22e9), (0x55, 10e9), (0, 6e9))
"""Bytes per second and direction between two processors that NCCL plans with; of Intel's, by the least model number of
family 6 (NVIDIA/nccl@5067397 src/graph/topo.h, `*_BW`; topo.cc, `ncclTopoGetInterCpuBw` and `ncclTopoAddCpu`)."""

UNKNOWN_PROCESSOR = 10e9
"""Of processors that a file does not name: those of Intel from 2017 to 2022, the least of current servers on x86."""


def pci_rate(text: str) -> float | None:
    """GT/s of a link speed as the kernel writes it (`16.0 GT/s PCIe`, `8 GT/s`); None: it says none."""
    found = _RATE.match(text)
    rate = float(found[1]) if found else 0.0
    return rate if 0.0 < rate <= ENCODINGS[-1][0] else None


def pci_nominal(rate: float, lanes: int) -> float:
    """Bytes per second and direction of `lanes` lanes at `rate` GT/s."""
    share = next(share for most, share in ENCODINGS if rate <= most)
    return rate * 1e9 * share * lanes / 8


def pci_reached(nominal: float) -> float:
    """What messages reach of it: the catalogue's share for PCI Express 4."""
    return nominal * reached(PCI_LINK)[0]


def between_processors(attributes: Mapping[str, str]) -> float | None:
    """Bytes per second and direction between two processors; None: the file does not name them.

    Args:
        attributes: of a `cpu` of NCCL's XML: `arch`, `vendor`, `familyid` and `modelid`.
    """
    architecture, vendor = attributes.get("arch", ""), attributes.get("vendor", "")
    if architecture.startswith("ppc64"):
        return POWER
    if architecture.startswith(("arm64", "aarch64")):
        return ARM
    if vendor == "AuthenticAMD":
        return AMD
    if vendor == "GenuineIntel":
        family, model = (_number(attributes.get(key, "")) for key in ("familyid", "modelid"))
        return next(bandwidth for least, bandwidth in INTEL if (model if family == 6 else 0) >= least)
    return ZHAOXIN if vendor.strip() in ("CentaurHauls", "Shanghai") else None


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
