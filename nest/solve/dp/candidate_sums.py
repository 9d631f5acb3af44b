"""Candidates summed over downsets, whatever the replicas and their order (PROBLEM.md section 4)."""

from attrs import frozen

from nest.instance import Array, Candidate, Instance, ParameterGroup
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.largest import AlongRuns, ByValue, largest
from nest.solve.dp.sums import Sums, sums_of


@frozen(eq=False)
class ModeSums:
    """A recompute mode summed over downsets.

    Attributes:
        extra: seconds added to the backward pass.
        first: bytes for one in-flight micro-batch, infinite where a layer cannot run in this mode.
        more: bytes for each further one.
        peak: transient bytes, of which a stage takes the largest of its layers.
        stash_inputs: whether a stage keeps its inputs for each further micro-batch.
        busy: by level, seconds for which what runs again occupies ports; none where it says nothing.
    """

    extra: Sums
    first: Sums
    more: Sums
    peak: ByValue | AlongRuns
    stash_inputs: bool
    busy: tuple[Sums, ...] = ()


@frozen(eq=False)
class CandidateSums:
    """A candidate summed over downsets, whatever the replicas and their order.

    Attributes:
        candidate: the candidate.
        cut: bytes that enter each downset, shape `(downsets,)`.
        compute: forward and backward seconds.
        modes: the recompute modes allowed, by name.
        state: by parameter group, the weights, gradients, optimizer bytes, update seconds and pieces.
        busy: by level, seconds for which collectives occupy ports; none where the candidate has no ports.
    """

    candidate: Candidate
    cut: Array
    compute: Sums
    modes: dict[str, ModeSums]
    state: tuple[tuple[ParameterGroup, Sums, Sums, Sums, Sums, Sums | None], ...]
    busy: tuple[Sums, ...] = ()


def candidate_sums(instance: Instance, candidate: Candidate, downsets: Downsets) -> CandidateSums:
    """Sums of `candidate` over `downsets`."""
    allowed = instance.space.recompute
    chosen = [mode for mode in candidate.recompute if allowed is None or mode.name in allowed]
    rows = [candidate.forward + candidate.backward]
    rows += [row for mode in chosen for row in (mode.extra, mode.first, mode.more)]
    for group in candidate.state:
        rows += [group.weights, group.gradients, group.optimizer, group.update]
        rows += [] if group.pieces is None else [group.pieces]
    loads = [busy for busy in (candidate.busy, *(mode.busy for mode in chosen)) if busy is not None]
    rows += [row for busy in loads for row in busy]
    summed = iter(sums_of(rows, downsets))
    compute = next(summed)
    of_modes = [(next(summed), next(summed), next(summed)) for _ in chosen]
    state = tuple(
        (
            *(group, next(summed), next(summed), next(summed), next(summed)),
            None if group.pieces is None else next(summed),
        )
        for group in candidate.state
    )

    def ports(busy: Array | None) -> tuple[Sums, ...]:
        return () if busy is None else tuple(next(summed) for _ in busy)

    busy = ports(candidate.busy)
    modes = {
        mode.name: ModeSums(*sums, largest(downsets, mode.peak), mode.stash_inputs, ports(mode.busy))
        for mode, sums in zip(chosen, of_modes, strict=True)
    }
    return CandidateSums(candidate, cuts(instance, candidate, downsets), compute, modes, state, busy)


def cuts(instance: Instance, candidate: Candidate, downsets: Downsets) -> Array:
    """`cut(D)` of PROBLEM.md section 4 for every downset, bytes."""
    cut: Array = downsets.crossing(instance.graph.tensors) @ candidate.tensor_bytes
    return cut
