"""Rail-optimised networks (NVIDIA DGX SuperPOD reference architecture, https://docs.nvidia.com/dgx-superpod/)."""

from nest.network.graph import LinkGraph, NetworkBuilder, check_size
from nest.spec import RailOptimisedSpec
from nest.topologies.parametric import ParametricNetwork


def _rail_optimised(source: RailOptimisedSpec) -> LinkGraph:
    """GPUs `node.gpu`, NVLink switches, leaf switches (one for each rail of a unit), spine and links."""
    unit = source.nodes if source.unit is None else source.unit
    devices, units = source.nodes * source.gpus, source.nodes // unit
    check_size(devices, devices + source.nodes + units * source.gpus + 1, 2 * devices + units * source.gpus)
    network = NetworkBuilder()
    gpus = [[network.device(f"{node}.{gpu}") for gpu in range(source.gpus)] for node in range(source.nodes)]
    leaves = [[network.switch(f"leaf {part}.{rail}") for rail in range(source.gpus)] for part in range(units)]
    for node, members in enumerate(gpus):
        inside = network.switch(f"nvlink {node}")
        for rail, gpu in enumerate(members):
            network.link(gpu, inside, source.nvlink_bandwidth, source.nvlink_latency / 2)
            network.link(gpu, leaves[node // unit][rail], source.bandwidth, source.latency)
    if source.spine and (units > 1 or source.gpus > 1):
        spine = network.switch("spine")
        for row in leaves:
            for leaf in row:
                network.link(leaf, spine, unit * source.bandwidth / source.oversubscription, source.latency)
    return network.built()


importer = ParametricNetwork("rail-optimised", RailOptimisedSpec, _rail_optimised)
