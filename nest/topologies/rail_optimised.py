"""Rail-optimised networks (NVIDIA DGX SuperPOD reference architecture, https://docs.nvidia.com/dgx-superpod/)."""

from typing import Any

from nest.network.graph import LinkGraph, NetworkBuilder, check_size
from nest.spec import RailOptimisedSpec


class RailOptimisedImporter:
    """Reads `rail-optimised: {nodes, gpus, nvlink_bandwidth, bandwidth, ...}`."""

    name = "rail-optimised"

    def accepts(self, source: Any) -> bool:
        """Whether `source` is such a network."""
        return isinstance(source, RailOptimisedSpec)

    def load(self, source: RailOptimisedSpec) -> LinkGraph:
        """Its GPUs `node.gpu`, NVLink switches, leaf switches (one for each rail of a unit), spine and links.

        Raises:
            InputError: it has too many devices, or fewer than two.
        """
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
