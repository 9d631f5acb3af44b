"""Section 4 of PROBLEM.md, formula by formula."""

from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from math import fsum

from tests.oracle.collectives import collective
from tests.oracle.network import Network
from tests.oracle.partitions import cut_bytes
from tests.oracle.parts import Part, mode_of
from tests.oracle.settings import Setting, exposed_share, given, hides, hides_messages


def over(layers, values) -> float:
    """The sum of a stage's own numbers, right to the last bit whatever their size."""
    return fsum([values[layer] for layer in layers])


def compute_time(candidate: dict, layers, recompute: str | Part) -> float:
    extra = mode_of(candidate, recompute)["extra"]
    return over(layers, candidate["forward"]) + over(layers, candidate["backward"]) + over(layers, extra)


@dataclass(frozen=True)
class Sent:
    """What one parameter group of a stage sends and updates, in seconds, and over how many devices ZeRO shards it.

    Of what is sent, the seconds come first, then the latencies in them, then those for which a port of each level is
    occupied.
    """

    all_reduced: list[float]
    scattered: list[float]
    gathered: list[float]
    reduced_across: list[float]
    update: float
    shards: int


def sent(problem: dict, network: Network, setting: Setting, candidate: dict, layers) -> list[Sent]:
    """What each parameter group of a stage with these layers sends, whatever its ZeRO stage."""
    found = []
    for group in candidate["state"].values():
        devices = sorted(setting.sharing(candidate["width"], group["ranks"]))
        z = setting.shards(group["ranks"])
        runs = [devices[first : first + z] for first in range(0, len(devices), z)]
        alike = [[run[place] for run in runs] for place in range(z)]
        gradients, weights = over(layers, group["gradients"]), over(layers, group["weights"])
        seconds = partial(collective, problem, network)
        found.append(
            Sent(
                seconds("all_reduce", gradients, [devices]),
                seconds("reduce_scatter", gradients, runs),
                seconds("all_gather", weights, runs),
                seconds("all_reduce", gradients / z, alike),
                over(layers, group["update"]),
                z,
            )
        )
    return found


@dataclass(frozen=True)
class Shared:
    """What the parameter groups add to a stage.

    Attributes:
        often: seconds that show in every micro-batch (`t`).
        gathered: what of them gathers weights for forward passes.
        gathers: the same for each group, as latencies and the rest.
        scatters: what of them scatters gradients of each group, as latencies and the rest.
        once: seconds that show once per batch, the optimizer step included (`y`).
        often_ports: seconds for which a port of each level is occupied in every micro-batch, shown or not.
        once_sent: seconds of all that is sent once per batch, shown or not.
        once_levels: the levels over which it goes.
        update: seconds of the optimizer step.
    """

    often: float
    gathered: float
    gathers: list[tuple[float, float]]
    scatters: list[tuple[float, float]]
    once: float
    often_ports: list[float]
    once_sent: float
    once_levels: list[int]
    update: float


def zero_times(problem: dict, groups: list[Sent], compute: float, zero: int) -> Shared:
    """What the parameter groups add to `t` and to `y` of a stage whose compute takes so long."""
    often, once, updates, forward = [0.0], [0.0], 0.0, 0.0
    for group in groups:
        rs, ag, ar, z = group.scattered, group.gathered, group.reduced_across, group.shards
        stages = ([], [group.all_reduced]), ([], [rs, ar, ag]), ([rs], [ar, ag]), ([rs, ag, ag], [ar])
        add_often, add_once = stages[zero]
        often, once = added([often, *add_often]), added([once, *add_once])
        updates += group.update / (z if zero else 1)
        forward += ag[0] if zero == 3 else 0.0
    c, y = often[0], once[0]
    y *= given(problem["training"], "synchronisation", 1.0)
    y *= given(problem["training"], "sharded_synchronisation", 1.0) if zero else 1.0
    e = exposed_share(problem)
    shown_often, shown_once = e * c, e * y
    if hides(problem):
        # Per micro-batch its compute hides what is sent; per batch, that of one micro-batch.
        shown_often, shown_once = max(e * c, c - compute), max(e * y, y - compute)
    levels = [level for level, seconds in enumerate(once[2:]) if seconds > 0]
    shown = shown_often / c if c else 0.0
    gathers, scatters = (
        [parts(each, shown if zero in stages else 0.0) for each in sent]
        for sent, stages in (([g.gathered for g in groups], (3,)), ([g.scattered for g in groups], (2, 3)))
    )
    return Shared(shown_often, shown * forward, gathers, scatters, shown_once + updates, often[2:], y, levels, updates)


def parts(sent: list[float], share: float) -> tuple[float, float]:
    """The latencies and the other seconds of a share of a collective."""
    seconds, latency, *_ = sent
    return share * latency, share * (seconds - latency)


def added(parts: list[list[float]]) -> list[float]:
    """One after the other: the seconds of all, and those at each level."""
    return [sum(seconds) for seconds in zip_longest(*parts, fillvalue=0.0)]


def with_ports(
    problem: dict,
    setting: Setting,
    candidate: dict,
    layers,
    recompute: str | Part,
    shared: Shared,
    messages,
    time: float,
) -> tuple[float, float]:
    """`t` and `y` of a stage, given the `t` that it would have without ports.

    `messages` are the levels in front of and behind the stage with the seconds that arrive over each. The port of a
    level is occupied by the collectives inside the block, by the messages over boundaries of the level and by what ZeRO
    sends in every micro-batch. No micro-batch is done before the busiest port is.
    """
    if candidate.get("busy") is None:
        return time, shared.once
    ports = [over(layers, row) for row in candidate["busy"]]
    again = [over(layers, row) for row in given(mode_of(candidate, recompute), "busy", [])]
    for level, seconds in chain(enumerate(shared.often_ports), enumerate(again), messages):
        if level >= 0:
            ports[level] += seconds
    time = max(time, *ports)
    if exposed_share(problem) >= 1 or not shared.once_levels:
        return time, shared.once
    # What may hide does so while its ports are free, in all micro-batches.
    free = min(time - ports[level] for level in shared.once_levels)
    return time, max(shared.once, shared.once_sent - setting.micro_batches * free + shared.update)


def stage_times(
    problem: dict,
    setting: Setting,
    candidate: dict,
    layers,
    recompute: str | Part,
    shared: Shared,
    weights,
    arriving,
    returning,
) -> tuple[float, float, float]:
    """`t`, what the stage adds to the sum of the step time, and `y`.

    `arriving` and `returning` are the messages of all its chunks: the level and the seconds of each.
    """
    compute = compute_time(candidate, layers, recompute)
    forwards, backwards = (sum(seconds for _, seconds in messages) for messages in (arriving, returning))
    hides = hides_messages(problem, setting.schedule)
    whole = compute + forwards + backwards + shared.often
    alone = whole - (min(forwards + backwards, compute) if hides else 0.0)
    time, once = with_ports(problem, setting, candidate, layers, recompute, shared, [*arriving, *returning], alone)
    wait = time - alone
    f = over(layers, candidate["forward"]) + shared.gathered
    w = over(layers, finding_weight_gradients(candidate))
    if hides:
        # Whatever weighs what is computed, each message shows once, while the pipeline fills or drains.
        return time, filling(weights, compute + shared.often, f, w, wait) + forwards + backwards, once
    return time, filling(weights, whole, f + forwards, w, wait), once


def filling(weights, whole, forward, gradients, wait):
    """What a stage adds to the sum of the step time, of numbers or arrays; `whole` is all of it but for the wait."""
    _, first, second, third = weights
    if first == second == third:
        return first * (whole + wait)
    inputs = whole - forward - gradients
    return first * forward + second * inputs + third * gradients + (first + second) / 2 * wait


def finding_weight_gradients(candidate: dict) -> list[float]:
    """Seconds of each layer; half of its backward pass where the candidate does not say."""
    return given(candidate, "weight_gradients", [seconds / 2 for seconds in candidate["backward"]])


def messages(network: Network, sizes, levels) -> list[tuple[int, float]]:
    """The level and the seconds of messages of such sizes over boundaries of such levels."""
    return [(level, network.point_to_point(size, level)) for size, level in zip(sizes, levels, strict=True)]


def can_run(candidate: dict, layers, recompute: str | Part) -> bool:
    """Whether all these layers can run in a mode: null in a row of `first` says that a layer cannot (FORMATS.md)."""
    first = mode_of(candidate, recompute)["first"]
    return all(first[layer] is not None for layer in layers)


def memory(
    problem: dict, candidate: dict, setting: Setting, runs, recompute: str | Part, zero: int, moments, entering
) -> float:
    """Bytes on each device of a stage, the reserve included.

    `runs` are the layers of its chunks, `entering` the bytes that arrive in front of each, and `moments` rows of the
    micro-batches that each holds.
    """
    layers = sorted(chain(*runs))
    more = [memory_of_more(candidate, run, recompute, cut) for run, cut in zip(runs, entering, strict=True)]
    further = max(fsum((held - 1) * size for held, size in zip(row, more, strict=True)) for row in moments)
    return memory_of_one(problem, candidate, setting, layers, recompute, zero) + further


def memory_of_one(problem: dict, candidate: dict, setting: Setting, layers, recompute: str | Part, zero: int) -> float:
    """Bytes with one micro-batch in flight."""
    total = given(problem["cluster"], "reserve", 0.0)
    copies = setting.pipeline.said.copies
    for group in candidate["state"].values():
        z = setting.shards(group["ranks"])
        total += copies * over(layers, group["weights"]) / (z if zero >= 3 else 1)
        total += copies * over(layers, group["gradients"]) / (z if zero >= 2 else 1)
        total += copies * over(layers, group["optimizer"]) / (z if zero >= 1 else 1)
    mode = mode_of(candidate, recompute)
    return total + over(layers, mode["first"]) + max(mode["peak"][layer] for layer in layers)


def memory_of_more(candidate: dict, layers, recompute: str | Part, cut: float) -> float:
    """Bytes that each further micro-batch needs."""
    mode = mode_of(candidate, recompute)
    return over(layers, mode["more"]) + (cut if given(mode, "stash_inputs", False) else 0.0)


def cuts_around(problem: dict, candidate: dict, sets, stage: int) -> tuple[float, float]:
    """Bytes that a device of this candidate's block takes in from in front and from behind of a stage, counted from 1.

    `sets` are the downsets `D_1, ..., D_s, D_{s+1}`.
    """
    edges = problem["profile"]["edges"]
    before, behind = sets[stage - 1], sets[stage]
    return cut_bytes(before, edges, candidate["edge_bytes"]), cut_bytes(behind, edges, candidate["edge_bytes"])
