"""Which stage of which replica every device of the cluster belongs to."""

from attrs import frozen

from nest.deployment.ranks import named_seats, seats
from nest.errors import InputError
from nest.formulate.embedding import irregular
from nest.plan import first_devices, replica_size, widest
from nest.reporting.subject import Subject


@frozen
class Place:
    """Where a device of a plan stands.

    Attributes:
        replica: from 0.
        stage: from 0.
    """

    replica: int
    stage: int


@frozen
class Devices:
    """The devices of a cluster along its levels.

    Attributes:
        places: of each device; None: the plan does not use it.
        names: of each device, as its network calls them; empty: they have but numbers.
        hosts: of each device, the name of its machine; empty: nobody named the machines.
    """

    places: tuple[Place | None, ...]
    names: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def blocks(self, stage: int) -> tuple[tuple[int, ...], ...]:
        """For each replica, the devices of a stage in ascending order."""
        found: dict[int, list[int]] = {}
        for device, place in enumerate(self.places):
            if place is not None and place.stage == stage:
                found.setdefault(place.replica, []).append(device)
        return tuple(tuple(found[replica]) for replica in sorted(found))


def devices(subject: Subject) -> Devices:
    """The devices of a plan; on a network that is no hierarchy, those that its placement names."""
    size = subject.instance.cluster.size
    places: list[Place | None] = [None] * size
    placement = subject.plan.placement
    if placement is not None:
        pairs = irregular(subject.problem.cluster, subject.known)
        assert pairs is not None  # The plan holds, and placements are of such networks only.
        number = {name: device for device, name in enumerate(pairs.names)}
        for replica, blocks in enumerate(placement.replicas):
            for stage, block in enumerate(blocks):
                for name in block:
                    places[number[name]] = Place(replica, stage)
        named = named_seats(pairs.names)
        hosts = tuple(seat.node for seat in named) if named is not None and named[0].named else ()
        return Devices(tuple(places), pairs.names, hosts)
    solution, instance = subject.solution, subject.instance
    room = replica_size(instance.cluster, widest(instance, solution), solution.replicas)
    for stage, decided in enumerate(solution.stages):
        width = instance.candidates[decided.candidate].width
        for replica, first in enumerate(first_devices(solution, room, decided.offset, width).tolist()):
            places[first : first + width] = [Place(replica, stage)] * width
    return Devices(tuple(places), (), _hosts(subject, size))


def _hosts(subject: Subject, size: int) -> tuple[str, ...]:
    """The machine of each device, where somebody named them."""
    cluster = subject.problem.cluster
    if not cluster.hosts:
        return ()
    try:
        found = seats(size, cluster.hosts, cluster.devices_per_host, subject.instance.cluster.capacities[0])
    except InputError:  # Hosts that do not hold the devices stop who starts processes, not who draws.
        return ()
    return tuple(seat.node for seat in found)


def runs(numbers: tuple[int, ...]) -> list[tuple[int, int]]:
    """First and last of each run of neighbours among ascending numbers."""
    found: list[tuple[int, int]] = []
    for each in numbers:
        if found and found[-1][1] == each - 1:
            found[-1] = found[-1][0], each
        else:
            found.append((each, each))
    return found


def told(blocks: tuple[tuple[int, ...], ...]) -> str:
    """The devices of a stage in all replicas, in words: `0-7 (16 times, 64 apart)`."""
    spans = runs(tuple(sorted(device for block in blocks for device in block)))
    parts: list[str] = []
    place = 0
    while place < len(spans):
        first, last = spans[place]
        again = _repeats(spans, place)
        text = f"{first}-{last}" if last > first else str(first)
        if again >= 4:
            step = spans[place + 1][0] - first
            parts.append(f"{text} ({again} times, {step} apart)")
            place += again
        else:
            parts.append(text)
            place += 1
    return ", ".join(parts)


def _repeats(spans: list[tuple[int, int]], place: int) -> int:
    """Runs from `place` on that are equally long and equally far apart."""
    if place + 1 >= len(spans):
        return 1
    first, last = spans[place]
    step = spans[place + 1][0] - first
    count = 1
    while place + count < len(spans) and spans[place + count] == (first + count * step, last + count * step):
        count += 1
    return count
