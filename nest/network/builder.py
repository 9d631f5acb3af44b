"""Putting a network together node by node."""

from nest.network.graph import LinkGraph, link_graph


class NetworkBuilder:
    """Nodes and links in the order in which they are added."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._is_device: list[bool] = []
        self._links: list[tuple[int, int, float, float]] = []

    def device(self, name: str) -> int:
        """Add a device; its number."""
        return self._node(name, is_device=True)

    def switch(self, name: str) -> int:
        """Add a switch; its number."""
        return self._node(name, is_device=False)

    def link(self, one: int, two: int, bandwidth: float, latency: float) -> None:
        """Add a link: two nodes, bytes per second and direction, seconds."""
        self._links.append((one, two, bandwidth, latency))

    def built(self, *, shared: bool = True) -> LinkGraph:
        """The network.

        Raises:
            InputError: it is none; `link_graph` says what may be wrong.
        """
        return link_graph(self._names, self._is_device, self._links, shared=shared)

    def _node(self, name: str, *, is_device: bool) -> int:
        self._names.append(name)
        self._is_device.append(is_device)
        return len(self._names) - 1
