"""What one collective call of an operator takes, and how long it occupies a device's ports."""

from collections.abc import Sequence
from math import prod

import numpy
from attrs import frozen

from nest.graph import Communication
from nest.instance import Array, Cluster, CollectiveModel, port_seconds
from nest.spec import Training

Shape = tuple[int, ...]


@frozen
class Phase:
    """A collective that runs beside the others of a call.

    Attributes:
        kind: as `Communication.kind`.
        bytes: as `Communication.bytes`.
        shape: of its members, per level.
        members: devices.
    """

    kind: str
    bytes: float
    shape: Shape
    members: int


@frozen
class Calls:
    """Prices calls.

    Attributes:
        cluster: the network.
        model: the collective model.
        training: says how tokens reach their experts.
        inside: levels, from the innermost outwards, of the scale-up network.
    """

    cluster: Cluster
    model: CollectiveModel
    training: Training
    inside: int

    def seconds(self, call: Communication, shapes: Sequence[Shape], members: int) -> float:
        """Seconds of one call by groups of so many ranks that lie in these shapes: of the slowest of its phases."""
        levels, price = self.cluster.levels, self.model.time
        phases = [each for shape in shapes for each in self._phases(call, shape, members) if each.bytes]
        return max(
            (price(each.kind, each.bytes, each.shape, levels, members=each.members) for each in phases), default=0.0
        )

    def ports(self, call: Communication, shapes: Sequence[Shape], members: int) -> Array:
        """Seconds for which all of a call occupies a device's port, at the worst of the groups. Shape `(levels,)`."""
        levels = self.cluster.levels
        found = numpy.zeros(len(levels))
        for shape in shapes:
            every = [
                port_seconds(self.model, each.kind, numpy.array([each.bytes]), each.shape, levels, each.members)[:, 0]
                for each in self._phases(call, shape, members)
            ]
            found = numpy.maximum(found, sum(every, numpy.zeros(len(levels))))
        return call.count * found

    def _phases(self, call: Communication, shape: Shape, members: int) -> list[Phase]:
        """What a call does at the same time.

        Tokens on their way to experts are as many as the rank with the busiest ones gets. Where a node gets one copy of
        a token, whatever the number of its experts there, it travels to the device of the same place in that node,
        which forwards it inside to each rank that has some (DeepSeek-V3, arXiv 2412.19437, section 3.2.2). Both ways
        are under way at once.
        """
        if call.routing is None:
            return [Phase(call.kind, call.bytes, shape, members)]
        sent = call.bytes * (self.training.expert_imbalance or 1.0)
        if self.training.dispatch != "per-node":
            return [Phase(call.kind, sent, shape, members)]
        here, there = shape[: self.inside], shape[self.inside :]
        nodes, once = prod(there), sent / call.routing.copies
        found = [Phase(call.kind, once * call.routing.reached(members), (*here, *(1 for _ in there)), prod(here))]
        if nodes > 1:
            across = (*(1 for _ in here), *there)
            found.append(Phase(call.kind, once * call.routing.reached(nodes), across, nodes))
        return found
