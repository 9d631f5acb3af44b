"""From Galvatron's profiles to a profile of nest: candidates as numbers.

Galvatron (Miao et al., PVLDB 16(3), 2022, arXiv 2211.13878) measures one layer, and all else, on one device, and
derives the rest. This is its arithmetic (PKU-DAIR/Hetu-Galvatron, `galvatron/core/cost_model/components`):

* tensor parallelism divides forward times by its degree; the backward pass takes twice as long (`bct_fct_coe`);
* embedding and head take half each of what is not a layer's;
* with sequence parallelism a layer makes 6 all-gathers (or reduce-scatters) of its activations that nothing hides, 4 of
  them forward; without it 4 all-reduces, 2 of them forward; run again, half as many once more. Embedding and head make
  one all-gather each;
* model states are 4 times the fp32 parameters: with mixed precision 1/8 weights, 1/8 gradients, 3/4 optimizer, in fp32
  1/4, 1/4 and 1/2 (`zero2_ratio`, `zero3_ratio`).
"""

from collections.abc import Sequence

from attrs import frozen

from nest.errors import InputError
from nest.spec.problem import ProfileCandidate, ProfileGroup, ProfileRecompute, ProfileSpec
from nest.units import Bytes, Seconds
from nest_measured.galvatron_files import MEBIBYTE, MILLISECOND, Memory, Profiles

BACKWARD = 2.0
"""Backward time over forward time (`bct_fct_coe`)."""

STATES = 4.0
"""Model states over fp32 parameters."""

SHARES = {True: (1 / 8, 1 / 8, 3 / 4), False: (1 / 4, 1 / 4, 1 / 2)}
"""Shares of weights, gradients and optimizer in model states, by whether precision is mixed."""

GATHERS = {True: (4, 2), False: (4, 4)}
"""All-gathers of a layer, forward and backward, by whether sequence parallelism is on; an all-reduce counts as two."""


@frozen
class Asked:
    """Facts that the files do not contain.

    Attributes:
        layers: number of transformer layers.
        hidden: width of the model.
        mixed: whether the precision is mixed, bf16 or fp16, and not fp32.
        tokens: of a sample.
        samples: sizes of micro-batches; None: all that were measured.
    """

    layers: int
    hidden: int
    mixed: bool
    tokens: int
    samples: tuple[int, ...] | None = None


def sequence_lengths(profiles: Profiles) -> list[int]:
    """The sequence lengths whose time and memory were both measured, ascending."""
    timed = {tokens for _, tokens in profiles.layer} & {tokens for _, tokens in profiles.other}
    return sorted(timed & {tokens for tokens, _ in profiles.memory})


def profile_of(profiles: Profiles, asked: Asked) -> ProfileSpec:
    """A candidate for each tensor-parallel degree and each micro-batch that was measured.

    Degrees above 1 need the times or the bandwidth of all-reduces among as many ranks.

    Raises:
        InputError: there is no measurement for the question.
    """
    measured = sorted(samples for samples, tokens in profiles.layer if tokens == asked.tokens)
    chosen = measured if asked.samples is None else [samples for samples in measured if samples in asked.samples]
    chosen = [samples for samples in chosen if (samples, asked.tokens) in profiles.other]
    ways = [
        (degree, parallel)
        for parallel in (False, True)
        if (memory := profiles.memory.get((asked.tokens, parallel))) is not None
        for degree in sorted(memory.activations)
        if all(degree in end for end in memory.ends) and _reaches(profiles, degree)
    ]
    # On one rank sequence parallelism changes nothing.
    ways = [way for way in ways if way != (1, True) or (1, False) not in ways]
    if not chosen or not ways:
        raise InputError(
            f"the files have no layer with times and memory at {asked.tokens} tokens and the micro-batches asked for; "
            f"measured are micro-batches of {', '.join(map(str, measured)) or 'no size'}."
        )
    return ProfileSpec(
        layers=("embedding", *(f"layers.{index}" for index in range(asked.layers)), "head"),
        edges=tuple((index, index + 1) for index in range(asked.layers + 1)),
        candidates=tuple(
            _candidate(profiles, asked, samples, degree, parallel) for degree, parallel in ways for samples in chosen
        ),
    )


def _reaches(profiles: Profiles, degree: int) -> bool:
    return degree == 1 or degree in profiles.messages or degree in profiles.bandwidths


def _candidate(profiles: Profiles, asked: Asked, samples: int, degree: int, parallel: bool) -> ProfileCandidate:
    memory = profiles.memory[asked.tokens, parallel]
    layer = profiles.layer[samples, asked.tokens] * samples / degree
    end = profiles.other[samples, asked.tokens] * samples / degree / 2
    stream = float(samples * asked.tokens * asked.hidden * (2 if asked.mixed else 4))
    gather = gather_seconds(profiles, stream, degree)
    forward_calls, backward_calls = GATHERS[parallel]
    count = asked.layers

    def along(first: float, each: float, last: float) -> tuple[float, ...]:
        """A number per layer: embedding, blocks, head."""
        return (first, *[each] * count, last)

    name = f"tp{degree}{' sp' if parallel and degree > 1 else ''} micro-batch {samples}"
    return ProfileCandidate(
        name=name,
        degrees={"tp": degree, "sp": degree if parallel else 1},
        width=degree,
        samples=samples,
        forward=_seconds(along(end + gather, layer + forward_calls * gather, end + gather)),
        backward=_seconds(along(BACKWARD * end, BACKWARD * layer + backward_calls * gather, BACKWARD * end)),
        state={"dense": _state(memory, asked, degree)},
        recompute=_recompute(
            memory, asked, samples, degree, parallel, layer + (forward_calls + backward_calls) / 2 * gather
        ),
        edge_bytes=(Bytes(stream / degree if parallel else stream),) * (count + 1),
    )


def gather_seconds(profiles: Profiles, size: float, ranks: int) -> float:
    """Seconds of an all-gather (or reduce-scatter) of `size` bytes among `ranks`.

    Half of an all-reduce, which is one of each (PROBLEM.md section 1). Between measured sizes times are interpolated;
    below them the smallest counts, above them the slope of the last two. Without times, the bus bandwidth tells.
    """
    if ranks == 1:
        return 0.0
    points = profiles.messages.get(ranks)
    if points is None:
        return size / MEBIBYTE * (ranks - 1) / ranks / profiles.bandwidths[ranks] * MILLISECOND
    if size <= points[0][0] or len(points) == 1:
        return points[0][1] / 2 * max(1.0, size / points[0][0])
    place = next((index for index, (known, _) in enumerate(points) if known >= size), len(points) - 1)
    (low, low_time), (high, high_time) = points[place - 1], points[place]
    return max(low_time, low_time + (size - low) / (high - low) * (high_time - low_time)) / 2


def _state(memory: Memory, asked: Asked, degree: int) -> ProfileGroup:
    first, last = (end[degree][0] for end in memory.ends)
    states = (first, *[STATES * memory.parameters / degree] * asked.layers, last)
    weights, gradients, optimizer = (tuple(Bytes(share * size) for size in states) for share in SHARES[asked.mixed])
    # Galvatron does not measure the optimizer's step.
    return ProfileGroup((0,), weights, gradients, optimizer, update=(Seconds(0.0),) * len(states))


def _recompute(
    memory: Memory, asked: Asked, samples: int, degree: int, parallel: bool, again: float
) -> dict[str, ProfileRecompute]:
    """The modes `none` and, where it was profiled, `full`: a layer run again keeps its input and has the rest back."""
    first, last = (end[degree][1] * samples for end in memory.ends)
    whole = memory.activations[degree] * samples

    def mode(extra: float, kept: float, back: float) -> ProfileRecompute:
        stored = tuple(Bytes(size) for size in (first, *[kept] * asked.layers, last))
        return ProfileRecompute(
            extra=_seconds((0.0, *[extra] * asked.layers, 0.0)),
            first=stored,
            more=stored,
            peak=tuple(Bytes(size) for size in (0.0, *[back] * asked.layers, 0.0)),
        )

    modes = {"none": mode(0.0, whole, 0.0)}
    if memory.checkpoint is not None:
        kept = min(whole, memory.checkpoint * samples / (degree if parallel else 1))
        modes["full"] = mode(again, kept, whole - kept)
    return modes


def _seconds(values: Sequence[float]) -> tuple[Seconds, ...]:
    return tuple(Seconds(value) for value in values)
