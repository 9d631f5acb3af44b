"""Clusters of several kinds of device (PROBLEM.md section 8)."""

from functools import cached_property

from attrs import field, frozen, validators

from nest.errors import InputError
from nest.instance.cluster import Cluster


@frozen
class Link:
    """What joins two pools.

    Attributes:
        bandwidth: bytes per second, per device and direction.
        latency: seconds from end to end.
    """

    bandwidth: float = field(validator=validators.gt(0))
    latency: float = field(validator=validators.ge(0))


@frozen
class Exposure:
    """What of data-parallel communication is exposed, as `Space` has it; models say it for each kind of device.

    Attributes:
        exposed: as `Space.exposed`.
        hiding: as `Space.hiding`.
        synchronisation: as `Space.synchronisation`.
        sharded_synchronisation: as `Space.sharded_synchronisation`.
        exposed_often: as `Space.exposed_often`.
    """

    exposed: float
    hiding: bool
    synchronisation: float = 1.0
    sharded_synchronisation: float = 1.0
    exposed_often: float | None = None


@frozen
class Pool:
    """Identical devices of a cluster that has others too.

    Attributes:
        name: unique in the cluster; candidates name the pool that they are priced for.
        cluster: its devices, memory and levels, numbered from 0.
        exposure: what of data-parallel communication is exposed on its devices; None: what the space says.
    """

    name: str
    cluster: Cluster
    exposure: Exposure | None = None


@frozen(slots=False)
class Pools:
    """The pools of a cluster, and the links between them.

    Attributes:
        members: in the order of the problem, which orders ties.
        links: joined pools, as two indices of `members`, each pair once in either order. Stages of pools that nothing
            joins are no neighbours.

    Raises:
        InputError: names repeat, a link names a pool that is not there or the same one twice, or a pair has two links.
    """

    members: tuple[Pool, ...] = field(validator=validators.min_len(1))
    links: tuple[tuple[int, int, Link], ...] = ()

    def __attrs_post_init__(self) -> None:
        names = self.names
        if len(set(names)) < len(names):
            raise InputError(f"two pools are called {next(each for each in names if names.count(each) > 1)!r}.")
        if any(not 0 <= end < len(names) for one, two, _ in self.links for end in (one, two)):
            raise InputError(f"a link names a pool that is not there; pools are counted from 0 to {len(names) - 1}.")
        pairs = [frozenset((one, two)) for one, two, _ in self.links]
        if any(len(pair) < 2 for pair in pairs) or len(set(pairs)) < len(pairs):
            raise InputError("each link joins two different pools, and each two pools have one at most.")

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(each.name for each in self.members)

    @property
    def size(self) -> int:
        """Number of devices of all pools."""
        return sum(each.cluster.size for each in self.members)

    @cached_property
    def _by_pair(self) -> dict[frozenset[int], Link]:
        return {frozenset((one, two)): link for one, two, link in self.links}

    def link(self, one: int, two: int) -> Link | None:
        """What joins two pools, by index; None: nothing does."""
        return self._by_pair.get(frozenset((one, two)))

    def index(self, name: str) -> int:
        """Where the pool called `name` is among them.

        Raises:
            ValueError: there is none.
        """
        return self.names.index(name)
