"""The constants NCCL plans with, as protocols of a link: fits to collectives begin there without a better prior."""

from nest.catalogue import Link
from nest.catalogue.entries import LinkLine

GATHERS = ("all_gather", "reduce_scatter")

BASE = {"LL": 3.6e-6, "LL128": 10.0e-6, "Simple": 8.4e-6}
"""Seconds of a call by protocol (NVIDIA/nccl@01afd20 src/graph/tuning.cc, `baseLat` of the ring)."""

STEP = {
    "nvlink": {"LL": 0.47e-6, "LL128": 1.9e-6, "Simple": 3.4e-6},
    "pcie": {"LL": 1.0e-6, "LL128": 2.5e-6, "Simple": 5.7e-6},
    "network": {"LL": 2.7e-6, "LL128": 4.0e-6, "Simple": 9.6e-6},
}
"""Seconds of a ring's step by kind of link and protocol (the same file, `hwLat` of the ring)."""

SHARE = {"LL": 1 / 3, "LL128": 0.92, "Simple": 1.0}
"""Share of a ring's bandwidth that a protocol reaches: its flags take the rest (the same file)."""

MESSAGES = {"LL": "LL", "Simple, few channels": "LL128", "Simple": "Simple"}
"""Ways in which NCCL sends messages, of which it makes its all-to-all, and the ring's protocol whose constants they are
believed to have. Large messages get more channels (NVIDIA/nccl src/enqueue.cc)."""

SWITCH_BASE = 23e-6
"""Seconds of an all-reduce in the switch (`hwLat` of NVLS in the same file of NCCL 2.18 and later)."""

SWITCH_MEMBERS = 5
"""Fewest devices for which NCCL reduces in the switch: measured on H200 with NCCL_ALGO left open
(stas00/ml-engineering@744d01e network/README.md, NVLink SHARP)."""

REDUCING = ("nvlink4",)
"""Links whose switches NCCL lets reduce: since the third NVSwitch (NVIDIA H100 Tensor Core GPU Architecture, 2022).
Those of NVLink 5 could, but up to 4 GiB NCCL stays with rings there: 741 GB/s on 8 B200, more only beyond
(stas00/ml-engineering@744d01e network/README.md)."""


def planned_lines(link: Link) -> tuple[LinkLine, ...]:
    """The protocols NCCL has for rings, for messages and for switches on `link`, with the constants it plans with.

    The widest reaches the link's efficiency. A member's own share costs half of one received on links that devices
    drive themselves, and nothing where a network card does; there all rings are believed alike, since few are measured.
    """
    kind = next((name for name in STEP if link.name.startswith(name)), "network")
    own = 0.0 if kind == "network" else 0.5
    rings = [(*GATHERS, "all_reduce")] if kind == "network" else [GATHERS, ("all_reduce",)]
    uses = [(kinds, name, name) for kinds in rings for name in BASE]
    uses += [(("all_to_all",), name, like) for name, like in MESSAGES.items()]
    lines = [
        LinkLine(name, kinds, BASE[like], STEP[kind][like], SHARE[like] * link.efficiency, own)
        for kinds, name, like in uses
    ]
    if link.name in REDUCING:
        step = STEP[kind]["LL"]
        lines.append(LinkLine("NVLS", ("all_reduce",), SWITCH_BASE, step, link.efficiency, 0.0, True, SWITCH_MEMBERS))
    return tuple(lines)
