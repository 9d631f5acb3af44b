"""Networks to draw: grids, switches, tiers; and what their devices serve."""

from nest.network import LinkGraph
from nest.network.graph import NetworkBuilder, grid
from nest_page.cluster import Place

GB = 1e9


def torus(*shape: int) -> LinkGraph:
    """Devices on a grid whose rows close, 45 GB/s a link."""
    return grid(shape, [True] * len(shape), 45 * GB, 1e-6)


def rails(nodes: int, gpus: int, *, shared: bool = True) -> LinkGraph:
    """Nodes whose GPUs of one number share a leaf switch, leaves joined by a spine."""
    network = NetworkBuilder()
    devices = [[network.device(f"{node}.{gpu}") for gpu in range(gpus)] for node in range(nodes)]
    leaves = [network.switch(f"leaf {gpu}") for gpu in range(gpus)]
    spine = network.switch("spine")
    for node, members in enumerate(devices):
        inside = network.switch(f"nvlink {node}")
        for gpu, device in enumerate(members):
            network.link(device, inside, 450 * GB, 1e-6)
            network.link(device, leaves[gpu], 50 * GB, 1e-6)
    for leaf in leaves:
        network.link(leaf, spine, 100 * GB, 1e-6)
    return network.built(shared=shared)


def routers(count: int, each: int) -> LinkGraph:
    """Switches of which every two are joined, and devices at each of them."""
    network = NetworkBuilder()
    devices = [[network.device(f"{router}.{device}") for device in range(each)] for router in range(count)]
    switches = [network.switch(f"router {router}") for router in range(count)]
    for router, switch in enumerate(switches):
        for device in devices[router]:
            network.link(device, switch, 50 * GB, 1e-6)
        for other in switches[:router]:
            network.link(switch, other, 25 * GB, 1e-6)
    return network.built()


def served(graph: LinkGraph, stages: int, width: int, replicas: int) -> dict[str, Place | None]:
    """Blocks of `width` devices one after the other, replica by replica, in the order of the file."""
    places: dict[str, Place | None] = {}
    for device, node in enumerate(graph.devices.tolist()):
        replica, stage = divmod(device // width, stages)
        places[graph.names[node]] = Place(replica, stage) if replica < replicas else None
    return places
