"""The network of a plan's cluster for ASTRA-sim's analytical backend: levels are switches, a torus is rings.

astra-sim/astra-network-analytical@599a047 common/network-parser/NetworkParser.cpp: one item a dimension, the fastest
first, bandwidths of one link and direction in GiB/s (common/NetworkFunction takes a GB for 2^30 bytes), latencies of
one link in ns.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from nest.errors import InputError
from nest.hooks.architectures import cluster_spec
from nest.spec import PlanDocument, TorusSpec
from nest_frameworks.common import plan_levels

FILE = "astra_sim_network.yml"
LINKS_OF_A_SWITCH = 2
"""Links between two devices of one switch: each delays a message by its latency."""


Dimension = tuple[str, int, float, float]
"""A building block of ASTRA-sim, devices of a row, bytes per second and direction of a link, and its seconds."""


def export(plan: PlanDocument) -> Mapping[str, str]:
    """The network file.

    Raises:
        InputError: the plan is infeasible, or its cluster is one device.
    """
    if not plan.stages:
        raise InputError(f"the plan is {plan.status!r}: there is nothing to export.")
    dimensions = _dimensions(plan)
    if not dimensions:
        raise InputError("the plan's cluster is one device, which has no network.")
    return {FILE: _text(dimensions)}


def _dimensions(plan: PlanDocument) -> list[Dimension]:
    torus = cluster_spec(plan).topology
    if isinstance(torus, TorusSpec):
        # The last coordinate varies fastest along the devices (docs/reference/topologies.md).
        sizes = [size for size in reversed(torus.shape) if size > 1]
        return [("Ring", size, float(torus.bandwidth), float(torus.latency)) for size in sizes]
    return [
        ("Switch", level.fanout, level.bandwidth, level.latency / LINKS_OF_A_SWITCH)
        for level in plan_levels(plan)
        if level.fanout > 1
    ]


def _text(dimensions: Sequence[Dimension]) -> str:
    kinds, sizes, bandwidths, latencies = zip(*dimensions, strict=True)
    rows = {
        "topology": kinds,
        "npus_count": map(str, sizes),
        "bandwidth": (_plain(each / 2**30) for each in bandwidths),
        "latency": (_plain(each * 1e9) for each in latencies),
    }
    units = {"bandwidth": "  # GiB/s of one link and direction", "latency": "  # ns of one link"}
    text = [
        "# The network a plan of nest was priced on: the fastest dimension first, at bandwidths that messages reach.",
        *(f"{key}: [ {', '.join(values)} ]{units.get(key, '')}" for key, values in rows.items()),
    ]
    return "\n".join(text) + "\n"


def _plain(value: float) -> str:
    """Without an exponent, which readers of YAML 1.1 take for text."""
    return format(Decimal(repr(float(value))), "f")
