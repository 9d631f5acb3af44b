"""Pools of a decided plan's stages: from `fixed.pools`, or one pool after the other."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from nest.errors import InputError
from nest.instance import Candidate, Instance


def in_pools(
    instance: Instance,
    first: Candidate,
    named: Sequence[str] | None,
    stages: int,
    replicas: int | None,
    usual: Callable[[Iterable[int]], int],
) -> tuple[int, list[int]]:
    """Replicas and candidate of each stage: in every pool one split like `first`, else its usual one.

    Args:
        first: the usual candidate of all.
        named: names of the stages' pools; None: stages fill the pools in order.
        replicas: as decided; None: as many as the devices hold.
        usual: the usual one among candidates, by index.

    Raises:
        InputError: pools have no room for these stages, or one has no candidate.
    """
    assert instance.pools is not None
    chosen: dict[int, int] = {}
    for pool in range(len(instance.pools.members)):
        own = [each for each in range(len(instance.candidates)) if instance.pool_of(each) == pool]
        alike = [each for each in own if instance.candidates[each].split == first.split]
        if own:
            chosen[pool] = usual(alike or own)
    pools = None if named is None else [instance.pools.index(name) for name in named]
    if pools is not None and len(pools) != stages:
        raise InputError(f"fixed.pools has {len(pools)} pools for {stages} stages; give each stage its pool.")
    for name, pool in zip(named or (), pools or (), strict=True):
        if pool not in chosen:
            raise InputError(f"fixed.pools: pool {name!r} can run none of the decisions in `fixed`.")
    if replicas is None:
        replicas = most_replicas(instance, chosen, stages, pools)
    return replicas, [chosen[pool] for pool in pools or pools_of_stages(instance, chosen, stages, replicas)]


def pools_of_stages(instance: Instance, chosen: Mapping[int, int], stages: int, replicas: int) -> tuple[int, ...]:
    """Default pools of stages, which fill the pools in the order of the problem.

    `chosen` maps each usable pool to its candidate, by index.

    Raises:
        InputError: the pools have no room for them.
    """
    rooms = {pool: _room(instance, candidate, replicas) for pool, candidate in sorted(chosen.items())}
    filled = tuple(pool for pool, room in rooms.items() for _ in range(room))
    if len(filled) < stages:
        raise InputError(
            f"fixed has {stages} stages in {replicas} replicas, but the pools have room for {len(filled)} replicas."
        )
    return filled[:stages]


def most_replicas(instance: Instance, chosen: Mapping[int, int], stages: int, pools: Sequence[int] | None) -> int:
    """Most replicas that the devices hold; `pools` are those of stages, if decided.

    Raises:
        InputError: they hold none.
    """
    wanted = Counter(pools) if pools is not None else None
    most = max(instance.cluster_of(each).size // instance.candidates[each].width for each in chosen.values())
    for replicas in range(most, 0, -1):
        rooms = {pool: _room(instance, candidate, replicas) for pool, candidate in chosen.items()}
        enough = sum(rooms.values()) >= stages if wanted is None else all(rooms[q] >= n for q, n in wanted.items())
        if enough:
            return replicas
    raise InputError(f"fixed has {stages} stages, but the pools have no room for them.")


def _room(instance: Instance, candidate: int, replicas: int) -> int:
    """Blocks of a candidate for which a replica has room in its pool."""
    return instance.cluster_of(candidate).size // (replicas * instance.candidates[candidate].width)


def check_room(instance: Instance, width: int, stages: int, replicas: int) -> None:
    """Check that replicas have the devices that their stages need.

    Raises:
        InputError: they have fewer, though one replica fits.
    """
    needed, own = stages * width, instance.size // replicas
    if own < needed <= instance.size:
        raise InputError(
            f"fixed: {stages} stages of {width} devices need {needed} devices per replica, but {replicas} replicas of "
            f"{instance.size} devices have {own}. Set fixed.replicas to {instance.size // needed} or less."
        )
