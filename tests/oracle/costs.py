"""Section 4 of PROBLEM.md, formula by formula."""

from dataclasses import dataclass
from functools import partial
from math import fsum

from tests.oracle.collectives import collective
from tests.oracle.network import Network
from tests.oracle.partitions import cut_bytes
from tests.oracle.settings import Setting, exposed_share, given, hides


def weights(schedule: str, micro_batches: int, stages: int, chunks: int = 1) -> tuple[float, float]:
    """`(A, B)` of the batch time."""
    bubbles = {"zero-bubble": stages - 1, "zero-bubble-h2": 0}
    if schedule in bubbles:
        # Thirds of a stage's time: those of the paper, or what the critical path of few micro-batches leaves.
        thirds = max(bubbles[schedule], 2 * stages - 1 - micro_batches) if stages > 1 else 0
        b = thirds / 3 / (stages - 1) if stages > 1 else 0.0
        return micro_batches - b, b
    return {
        "nest": (micro_batches + stages - 1, 0),
        "1f1b": (micro_batches - 1, 1),
        "gpipe": (micro_batches - 1, 1),
        "interleaved": (micro_batches - 1 / chunks, 1 / chunks),
    }[schedule]


def in_flight(schedule: str, micro_batches: int, stages: int, stage: int, chunks: int = 1) -> float:
    """Micro-batches in flight on stage `stage`, counted from 1."""
    return {
        "nest": min(micro_batches, stages - stage + 1),
        "1f1b": min(micro_batches, stages - stage + 1),
        "gpipe": micro_batches,
        "zero-bubble": min(micro_batches, stages),
        "zero-bubble-h2": min(micro_batches, 2 * stages - 1),
        "interleaved": min(micro_batches * chunks, 2 * (stages - stage) + (chunks - 1) * stages + 1) / chunks,
    }[schedule]


def over(layers, values) -> float:
    """The sum of a stage's own numbers, right to the last bit whatever their size."""
    return fsum([values[layer] for layer in layers])


def compute_time(candidate: dict, layers, recompute: str) -> float:
    extra = candidate["recompute"][recompute]["extra"]
    return over(layers, candidate["forward"]) + over(layers, candidate["backward"]) + over(layers, extra)


@dataclass(frozen=True)
class Sent:
    """What one parameter group of a stage sends and updates, in seconds, and over how many devices ZeRO shards it."""

    all_reduced: float
    scattered: float
    gathered: float
    reduced_across: float
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
                seconds("all_reduce", gradients, devices),
                max(seconds("reduce_scatter", gradients, run) for run in runs),
                max(seconds("all_gather", weights, run) for run in runs),
                max(seconds("all_reduce", gradients / z, members) for members in alike),
                over(layers, group["update"]),
                z,
            )
        )
    return found


def zero_times(problem: dict, groups: list[Sent], compute: float, zero: int) -> tuple[float, float]:
    """What the parameter groups add to `t` and to `y` of a stage whose compute takes so long."""
    c = y = updates = 0.0
    for group in groups:
        rs, ag, ar, u, z = group.scattered, group.gathered, group.reduced_across, group.update, group.shards
        add_c, add_y, add_u = [
            (0.0, group.all_reduced, u),
            (0.0, rs + ar + ag, u / z),
            (rs, ar + ag, u / z),
            (rs + 2 * ag, ar, u / z),
        ][zero]
        c += add_c
        y += add_y
        updates += add_u
    y *= given(problem["training"], "synchronisation", 1.0)
    y *= given(problem["training"], "sharded_synchronisation", 1.0) if zero else 1.0
    e = exposed_share(problem)
    if not hides(problem):
        return e * c, e * y + updates
    # Per micro-batch its compute hides what is sent; per batch, that of one micro-batch.
    return max(e * c, c - compute), max(e * y, y - compute) + updates


def transfer_time(network: Network, cuts, levels: tuple[int, int]) -> float:
    """Activations arriving in front and gradients arriving behind, of each of the stage's chunks.

    `cuts` are those in front of and behind each chunk; a stage without chunks is one.
    """
    return sum(
        network.point_to_point(size, level) for around in cuts for size, level in zip(around, levels, strict=True)
    )


def can_run(candidate: dict, layers, recompute: str) -> bool:
    """Whether all these layers can run in a mode: null in a row of `first` says that a layer cannot (FORMATS.md)."""
    first = candidate["recompute"][recompute]["first"]
    return all(first[layer] is not None for layer in layers)


def memory(
    problem: dict, candidate: dict, setting: Setting, layers, recompute: str, zero: int, flying: float, cut: float
) -> float:
    """Bytes on each device of a stage, the reserve included; `cut` is what arrives in front of it, or of its chunks."""
    more = memory_of_more(candidate, layers, recompute, cut)
    return memory_of_one(problem, candidate, setting, layers, recompute, zero) + (flying - 1) * more


def memory_of_one(problem: dict, candidate: dict, setting: Setting, layers, recompute: str, zero: int) -> float:
    """Bytes with one micro-batch in flight."""
    total = given(problem["cluster"], "reserve", 0.0)
    for group in candidate["state"].values():
        z = setting.shards(group["ranks"])
        total += over(layers, group["weights"]) / (z if zero >= 3 else 1)
        total += over(layers, group["gradients"]) / (z if zero >= 2 else 1)
        total += over(layers, group["optimizer"]) / (z if zero >= 1 else 1)
    mode = candidate["recompute"][recompute]
    return total + over(layers, mode["first"]) + max(mode["peak"][layer] for layer in layers)


def memory_of_more(candidate: dict, layers, recompute: str, cut: float) -> float:
    """Bytes that each further micro-batch needs."""
    mode = candidate["recompute"][recompute]
    return over(layers, mode["more"]) + (cut if given(mode, "stash_inputs", False) else 0.0)


def cuts_around(problem: dict, candidate: dict, sets, stage: int) -> tuple[float, float]:
    """Bytes that a device of this candidate's block takes in from in front and from behind of a stage, counted from 1.

    `sets` are the downsets `D_1, ..., D_s, D_{s+1}`.
    """
    edges = problem["profile"]["edges"]
    before, behind = sets[stage - 1], sets[stage]
    return cut_bytes(before, edges, candidate["edge_bytes"]), cut_bytes(behind, edges, candidate["edge_bytes"])
