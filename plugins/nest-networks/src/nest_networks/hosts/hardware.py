"""Accelerators by what files call them, the links of their generations, and PCI Express."""

import re
from collections.abc import Mapping

from attrs import frozen

from nest.catalogue import link, published_devices
from nest.units import whole_number


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


NVIDIA, AMD, AMAZON = 0x10DE, 0x1002, 0x1D0F
"""PCI vendor numbers (pci-ids.ucw.cz)."""

PRODUCTS: Mapping[tuple[int, int], tuple[str, str | None]] = {
    (NVIDIA, 0x15F9): ("P100 SXM2 16 GB", None),
    (NVIDIA, 0x1DB1): ("V100 SXM2 16 GB", None),
    (NVIDIA, 0x1DB4): ("V100 PCIe 16 GB", None),
    (NVIDIA, 0x1DB5): ("V100 SXM2 32 GB", "v100-sxm-32g"),
    (NVIDIA, 0x1DB6): ("V100 PCIe 32 GB", None),
    (NVIDIA, 0x1DB8): ("V100 SXM3 32 GB", "v100-sxm-32g"),
    (NVIDIA, 0x20B0): ("A100 SXM4 40 GB", "a100-sxm-40g"),
    (NVIDIA, 0x20B1): ("A100 PCIe 40 GB", None),
    (NVIDIA, 0x20B2): ("A100 SXM4 80 GB", "a100-sxm-80g"),
    (NVIDIA, 0x20B3): ("A100 SXM 64 GB", None),
    (NVIDIA, 0x20B5): ("A100 PCIe 80 GB", None),
    (NVIDIA, 0x20B7): ("A30", None),
    (NVIDIA, 0x20BD): ("A800 SXM4 40 GB", None),
    (NVIDIA, 0x20F1): ("A100 PCIe 40 GB", None),
    (NVIDIA, 0x20F3): ("A800 SXM4 80 GB", None),
    (NVIDIA, 0x2235): ("A40", None),
    (NVIDIA, 0x2237): ("A10G", None),
    (NVIDIA, 0x2321): ("H100 NVL 94 GB", None),
    (NVIDIA, 0x2322): ("H800 PCIe", None),
    (NVIDIA, 0x2324): ("H800 SXM 80 GB", "h800-sxm"),
    (NVIDIA, 0x2329): ("H20", None),
    (NVIDIA, 0x2330): ("H100 SXM5 80 GB", "h100-sxm"),
    (NVIDIA, 0x2331): ("H100 PCIe", None),
    (NVIDIA, 0x2335): ("H200 SXM 141 GB", "h200-sxm"),
    (NVIDIA, 0x2339): ("H100 SXM5 94 GB", None),
    (NVIDIA, 0x233B): ("H200 NVL", None),
    (NVIDIA, 0x2342): ("GH200 120 GB", None),
    (NVIDIA, 0x2348): ("GH200 144 GB", None),
    (NVIDIA, 0x26B5): ("L40", None),
    (NVIDIA, 0x26B9): ("L40S", "l40s"),
    (NVIDIA, 0x2901): ("B200", "b200-sxm"),
    (NVIDIA, 0x2941): ("GB200", "gb200"),
    (NVIDIA, 0x2BB1): ("RTX PRO 6000 Blackwell Workstation", "rtx-pro-6000"),
    (NVIDIA, 0x2BB4): ("RTX PRO 6000 Blackwell Max-Q", "rtx-pro-6000"),
    (NVIDIA, 0x2BB5): ("RTX PRO 6000 Blackwell Server", "rtx-pro-6000"),
    (NVIDIA, 0x2E12): ("GB10", "gb10"),
    (NVIDIA, 0x3182): ("B300 SXM6", "b300-sxm"),
    (NVIDIA, 0x31C2): ("GB300", "gb300"),
    (NVIDIA, 0x31C3): ("GB300", "gb300"),
    (AMD, 0x738C): ("MI100", None),
    (AMD, 0x7408): ("MI250X", "mi250x"),
    (AMD, 0x740C): ("MI250 or MI250X", None),
    (AMD, 0x740F): ("MI210", None),
    (AMD, 0x74A0): ("MI300A", None),
    (AMD, 0x74A1): ("MI300X", "mi300x"),
    (AMD, 0x74A2): ("MI308X", None),
    (AMD, 0x74A5): ("MI325X", "mi325x"),
    (AMD, 0x74B5): ("MI300X (virtual function)", "mi300x"),
    (AMD, 0x75A0): ("MI350X", None),
    (AMD, 0x75A3): ("MI355X", "mi355x"),
}
"""By PCI vendor and device: the product, and its name in the catalogue, where the catalogue has it
(pciutils/pciids@c1c1254 pci.ids)."""

_BOARDS = re.compile(r"SXM|H20$|GH200|MI250|MI3")
"""Products of `PRODUCTS` that are built on boards with direct links between all of a machine, and not as cards."""


def is_card(vendor: int | None, number: int | None) -> bool | None:
    """Return whether a PCI device is a card that need not have direct links; None: it is not known by name."""
    if vendor is None or number is None or (vendor, number) not in PRODUCTS:
        return None
    product, device = PRODUCTS[vendor, number]
    return (device is None or own_link(device) is None) and _BOARDS.search(product) is None


CAPABILITIES: Mapping[int, str] = {
    60: "a P100",
    70: "a V100 with 16 or 32 GB",
    80: "an A100 with 40 or 80 GB, an A800 or an A30",
    86: "an A10, A40 or GeForce RTX 30",
    89: "an L4, L40 or GeForce RTX 40",
    90: "an H100, H200, H800, H20 or GH200",
    100: "a B200 or GB200",
    103: "a B300 or GB300",
    120: "an RTX PRO Blackwell or GeForce RTX 50",
    121: "a GB10",
}
"""Products of each compute capability, times ten (developer.nvidia.com/cuda-gpus): a capability names no product."""

NVLINKS: tuple[tuple[int, str, float], ...] = (
    (100, "nvlink5", 50e9),
    (90, "nvlink4", 25e9),
    (86, "nvlink3", 14.0625e9),
    (80, "nvlink3", 25e9),
    (70, "nvlink2", 25e9),
    (0, "nvlink", 20e9),
)
"""From which compute capability on, link of the catalogue, nominal bytes per second and direction of one NVLink:
NVIDIA's white papers of Blackwell (18 links, 1.8 TB/s both ways), Hopper (18, 900 GB/s), GA102 (14.0625 GB/s a link and
direction), A100 (12, 600 GB/s), V100 (6, 300 GB/s) and P100 (4, 160 GB/s)."""

USUAL_CAPABILITY = 90
"""The device whose NVLink a silent file is assumed to have: NVLink 2, 3 and 4 share its rate, the lowest in servers."""

XGMI: tuple[tuple[str, float], ...] = (
    (r"gfx95|95\d", 76.8e9),
    (r"gfx94|94\d", 64e9),
    (r"gfx90a|910", 50e9),
    (r"gfx90[68]|90[68]", 46e9),
)
"""Nominal bytes per second and direction of one Infinity Fabric link between devices by `gcn`, as RCCL spells
the architecture: AMD's data sheets of MI350X (153.6 GB/s a link, both ways), MI300X (128), MI250X (100), MI100 and MI50
(92)."""

ARCHITECTURES: Mapping[str, str] = {"mi300x": "gfx942", "mi325x": "gfx942", "mi355x": "gfx950", "mi250x": "gfx90a"}
"""Of devices of the catalogue, as RCCL spells them (rocm.docs.amd.com, GPU hardware specifications)."""

USUAL_XGMI = 46e9
"""Of an architecture that is not listed: the lowest."""

_GENERATIONS: Mapping[str, int] = {
    "v100-sxm-32g": 70,
    "a100-sxm-40g": 80,
    "a100-sxm-80g": 80,
    "h100-sxm": 90,
    "h200-sxm": 90,
    "h800-sxm": 90,
    "b200-sxm": 100,
    "gb200": 100,
    "b300-sxm": 103,
    "gb300": 103,
}
"""Compute capability, times ten, of devices of the catalogue (developer.nvidia.com/cuda-gpus)."""


GENERATIONS = frozenset(_GENERATIONS.values())
"""Compute capabilities of devices of the catalogue."""


def capability(device: str | None) -> int | None:
    """Compute capability, times ten, of a device of the catalogue; None: it has none, or is not known."""
    return None if device is None else _GENERATIONS.get(device)


def nvlink(compute_capability: int) -> Fabric:
    """NVLink of devices of a compute capability, times ten."""
    name, rate = next((name, rate) for least, name, rate in NVLINKS if compute_capability >= least)
    return Fabric("NVLink", name, rate)


def infinity_fabric(architecture: str) -> Fabric:
    """Infinity Fabric of devices of an architecture as RCCL spells it (`gcn`)."""
    rate = next((rate for pattern, rate in XGMI if re.match(pattern, architecture)), USUAL_XGMI)
    return Fabric("Infinity Fabric", "infinity-fabric", rate)


def own_link(device: str) -> str | None:
    """The link of the catalogue that joins devices of this kind in a machine; None: it is not known."""
    if device in _GENERATIONS:
        return nvlink(_GENERATIONS[device]).link
    return "infinity-fabric" if device in ARCHITECTURES and device != "mi250x" else None  # Whose dies are not alike.


def slot_bandwidth(device: str | None) -> float | None:
    """Nominal bytes per second and direction of a device's PCI Express; None: the catalogue does not say."""
    device_figures = published_devices().get(device or "")
    return None if device_figures is None else device_figures.host_bandwidth or None


def reached(name: str) -> tuple[float, float]:
    """Share of the nominal bandwidth that messages reach on a link of the catalogue, and seconds from end to end."""
    kind = link(name)
    return kind.efficiency, kind.latency


PCI_LINK = "pcie4"
"""Link of the catalogue that says how much of PCI Express messages reach, of any generation, and how long they take."""

ENCODINGS: tuple[tuple[float, float], ...] = ((5.0, 8 / 10), (32.0, 128 / 130), (64.0, 242 / 256))
"""Up to which rate in GT/s, the share of bits that is data: PCI Express Base Specification 6.0, 8b/10b up to 5 GT/s,
128b/130b up to 32 GT/s, 242 of the 256 bytes of a flit at 64 GT/s."""

USUAL_RATE, USUAL_WIDTH = 8.0, 16
"""GT/s and lanes where a file has none, as NCCL takes them (NVIDIA/nccl@5067397 src/graph/topo.cc, `kvDictPciGen` and
`ncclTopoAddPci`)."""

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*GT/s", re.IGNORECASE)

POWER_LINK, ARM_LINK, AMD_LINK, ZHAOXIN_LINK = 32e9, 6e9, 16e9, 6e9
INTEL_LINKS = ((0xCF, 40e9), (0x8F, 22e9), (0x55, 10e9), (0, 6e9))
"""Bytes per second and direction between two processors that NCCL plans with; of Intel's, by the least model number of
family 6 (NVIDIA/nccl@5067397 src/graph/topo.h, `*_BW`; topo.cc, `ncclTopoGetInterCpuBw` and `ncclTopoAddCpu`)."""

UNKNOWN_PROCESSOR = 10e9
"""Of processors that a file does not name: those of Intel from 2017 to 2022, the least of current servers on x86."""


def pci_rate(text: str) -> float | None:
    """GT/s of a link speed as the kernel writes it (`16.0 GT/s PCIe`, `8 GT/s`); None: it says none."""
    match = _RATE.match(text)
    rate = float(match[1]) if match else 0.0
    return rate if 0.0 < rate <= ENCODINGS[-1][0] else None


def pci_width(text: str) -> int:
    """Lanes of a link; the usual ones where `text` is no number of them."""
    lanes = whole_number(text) or 0
    return lanes if 0 < lanes <= 32 else USUAL_WIDTH


def pci_nominal(rate: float, lanes: int) -> float:
    """Bytes per second and direction of `lanes` lanes at `rate` GT/s."""
    share = next(share for most, share in ENCODINGS if rate <= most)
    return rate * 1e9 * share * lanes / 8


def pci_reached(nominal: float) -> float:
    """Share of its bandwidth that messages reach: the catalogue's for PCI Express 4."""
    return nominal * reached(PCI_LINK)[0]


def between_processors(attributes: Mapping[str, str]) -> float | None:
    """Bytes per second and direction between two processors; None: the file does not name them.

    Args:
        attributes: of a `cpu` of NCCL's XML: `arch`, `vendor`, `familyid` and `modelid`.
    """
    architecture, vendor = attributes.get("arch", ""), attributes.get("vendor", "")
    if architecture.startswith("ppc64"):
        return POWER_LINK
    if architecture.startswith(("arm64", "aarch64")):
        return ARM_LINK
    if vendor in ("AuthenticAMD", "AMD"):
        return AMD_LINK
    if vendor in ("GenuineIntel", "Intel"):
        family, model = (whole_number(attributes.get(key, "")) or 0 for key in ("familyid", "modelid"))
        return next(bandwidth for least, bandwidth in INTEL_LINKS if (model if family == 6 else 0) >= least)
    return ZHAOXIN_LINK if vendor.strip() in ("CentaurHauls", "Shanghai") else None
