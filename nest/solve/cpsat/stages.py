"""What each stage costs with one candidate, as arrays over the stages of `Cuts` (PROBLEM.md section 4)."""

import numpy
from attrs import define, field, frozen

from nest.instance import Candidate, Instance, Level
from nest.solve.cpsat.cases import Case, Mode
from nest.solve.cpsat.cuts import Cuts, Floats
from nest.solve.cpsat.network import Peers, peers


@frozen(eq=False)
class StageCosts:
    """One candidate with its groups of devices known.

    Attributes:
        modes: what the rows of the arrays are.
        time: seconds per micro-batch without transfers. Shape `(modes, stages)`.
        sync: seconds per batch. Shape `(modes, stages)`.
        one: bytes with one micro-batch in flight, the reserve included. Shape `(modes, stages)`.
        more: bytes of each further one. Shape `(modes, stages)`.
        bytes: what crosses each cut. Shape `(cuts,)`.
    """

    modes: tuple[Mode, ...]
    time: Floats
    sync: Floats
    one: Floats
    more: Floats
    bytes: Floats

    def rows(self, modes: tuple[Mode, ...]) -> list[int]:
        """The rows of some modes."""
        return [self.modes.index(mode) for mode in modes]


@define
class StageBook:
    """The costs of stages, worked out once for each candidate and shape of its groups."""

    instance: Instance
    cuts: Cuts
    _parts: dict[int, "Parts"] = field(factory=dict)
    _peers: dict[tuple[int, int, str, int, int | None], tuple[Peers, ...]] = field(factory=dict)
    _costs: dict[tuple[int, tuple[Peers, ...]], StageCosts] = field(factory=dict)

    def costs(self, case: Case, candidate: int) -> StageCosts:
        """The costs of stages that use `candidate` in `case`."""
        place = (candidate, case.replicas, case.rank_order, case.widest, case.zero_degree)
        if place not in self._peers:
            self._peers[place] = peers(self.instance, case, candidate)
        found = self._peers[place]
        key = (candidate, found)
        if key not in self._costs:
            if candidate not in self._parts:
                self._parts[candidate] = Parts.of(self.instance, self.cuts, self.instance.candidates[candidate])
            self._costs[key] = priced(self.instance, self._parts[candidate], found)
        return self._costs[key]


@frozen(eq=False)
class Parts:
    """What does not depend on the replicas; arrays of shape `(stages,)`.

    Attributes:
        candidate: of the stages.
        compute: seconds of forward and backward.
        state: by parameter group, its sums.
        recompute: by mode, `extra` seconds, bytes of `one` micro-batch in flight and of each one `more`.
        bytes: what crosses each cut.
    """

    candidate: Candidate
    compute: Floats
    state: tuple[dict[str, Floats], ...]
    recompute: dict[str, dict[str, Floats]]
    bytes: Floats

    @classmethod
    def of(cls, instance: Instance, cuts: Cuts, candidate: Candidate) -> "Parts":
        """The costs of `candidate` in every stage between two cuts."""
        crossing = cuts.bytes(instance.graph, candidate)
        recompute = {}
        for mode in candidate.recompute:
            stashed = crossing[cuts.first] if mode.stash_inputs else 0.0
            recompute[mode.name] = {
                "extra": cuts.sums(mode.extra),
                "one": cuts.sums(mode.first) + cuts.largest(mode.peak),
                "more": cuts.sums(mode.more) + stashed,
            }
        names = ("weights", "gradients", "optimizer", "update")
        state = tuple({name: cuts.sums(getattr(group, name)) for name in names} for group in candidate.state)
        return cls(candidate, cuts.sums(candidate.forward + candidate.backward), state, recompute, crossing)


def priced(instance: Instance, parts: Parts, groups: tuple[Peers, ...]) -> StageCosts:
    """Stages with every mode that the space knows; `groups` are the devices of each parameter group."""
    modes = tuple(
        (mode.name, zero) for mode in parts.candidate.recompute for zero in dict.fromkeys(instance.space.zero)
    )
    sharded = {zero: _sharded(instance, parts, groups, zero) for zero in dict.fromkeys(instance.space.zero)}
    rows = []
    for recompute, zero in modes:
        waited = instance.space.synchronisation * (instance.space.sharded_synchronisation if zero else 1.0)
        mode, (every, once, update, held) = parts.recompute[recompute], sharded[zero]
        work = parts.compute + mode["extra"]
        rows.append((mode, work + _shown(instance, every, work), _shown(instance, waited * once, work) + update, held))
    reserve = instance.cluster.reserve
    return StageCosts(
        modes=modes,
        time=numpy.array([time for _, time, _, _ in rows]),
        sync=numpy.array([sync for _, _, sync, _ in rows]),
        one=numpy.array([mode["one"] + held + reserve for mode, _, _, held in rows]),
        more=numpy.array([mode["more"] for mode, _, _, _ in rows]),
        bytes=parts.bytes,
    )


def _shown(instance: Instance, seconds: Floats, work: Floats) -> Floats:
    """What is seen of `seconds` of communication beside `work` seconds of compute."""
    shown: Floats = instance.space.exposed * seconds
    return numpy.maximum(shown, seconds - work) if instance.space.hiding else shown


def _sharded(
    instance: Instance, parts: Parts, groups: tuple[Peers, ...], zero: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """Seconds a ZeRO stage communicates per micro-batch and per batch, the update's seconds, and the bytes kept."""
    every, once, update, held = (numpy.zeros_like(parts.compute) for _ in range(4))
    held += parts.candidate.gathered if zero == 3 else 0.0
    for sums, group in zip(parts.state, groups, strict=True):
        scatter = _collective(instance, "reduce_scatter", sums["gradients"], group.shards, group.count)
        gather = _collective(instance, "all_gather", sums["weights"], group.shards, group.count)
        if zero and group.replicates:
            across = group.members // group.count
            once += _collective(instance, "all_reduce", sums["gradients"] / group.count, group.replicates, across)
        update += sums["update"] / (group.count if zero else 1)
        if zero == 0:
            once += _collective(instance, "all_reduce", sums["gradients"], (group.shape,), group.members)
        elif zero == 1:
            once += scatter + gather
        elif zero == 2:
            every += scatter
            once += gather
        else:
            every += scatter + 2 * gather
        held += sums["weights"] / (group.count if zero == 3 else 1)
        held += sums["gradients"] / (group.count if zero >= 2 else 1)
        held += sums["optimizer"] / (group.count if zero >= 1 else 1)
    return every, once, update, held


def _collective(
    instance: Instance, kind: str, sizes: Floats, shapes: tuple[tuple[int, ...], ...], members: int
) -> Floats:
    """Seconds for each size, on the slowest of groups of these shapes and so many members; none for no bytes.

    Equal sizes, of which identical layers make many, are asked for once.
    """
    different, place = numpy.unique(sizes, return_inverse=True)
    levels: tuple[Level, ...] = instance.cluster.levels
    price = instance.collectives.time
    seconds = [
        max(float(price(kind, size, shape, levels, members=members)) for shape in shapes) if size else 0.0
        for size in different.tolist()
    ]
    return numpy.array(seconds)[place]
