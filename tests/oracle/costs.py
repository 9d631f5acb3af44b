"""Section 4 of PROBLEM.md, formula by formula."""

from tests.oracle.network import Network
from tests.oracle.partitions import cut_bytes
from tests.oracle.settings import Setting, exposed_share, given


def weights(schedule: str, micro_batches: int, stages: int) -> tuple[int, int]:
    """`(A, B)` of the batch time."""
    return {
        "nest": (micro_batches + stages - 1, 0),
        "1f1b": (micro_batches - 1, 1),
        "gpipe": (micro_batches - 1, 1),
    }[schedule]


def in_flight(schedule: str, micro_batches: int, stages: int, stage: int) -> int:
    """Micro-batches in flight on stage `stage`, counted from 1."""
    return micro_batches if schedule == "gpipe" else min(micro_batches, stages - stage + 1)


def over(layers, values) -> float:
    return sum(values[layer] for layer in layers)


def compute_time(candidate: dict, layers, recompute: str) -> float:
    extra = candidate["recompute"][recompute]["extra"]
    return over(layers, candidate["forward"]) + over(layers, candidate["backward"]) + over(layers, extra)


def zero_times(
    problem: dict, network: Network, setting: Setting, candidate: dict, layers, zero: int
) -> tuple[float, float]:
    """What the parameter groups add to `t` and to `y`."""
    e = exposed_share(problem)
    t = y = 0.0
    for group in candidate["state"].values():
        devices = sorted(setting.sharing(candidate["width"], group["ranks"]))
        z = setting.shards(group["ranks"])
        runs = [devices[first : first + z] for first in range(0, len(devices), z)]
        alike = [[run[place] for run in runs] for place in range(z)]
        gradients, weights = over(layers, group["gradients"]), over(layers, group["weights"])
        all_rs = network.ring(gradients, devices)
        rs = max(network.ring(gradients, run) for run in runs)
        ag = max(network.ring(weights, run) for run in runs)
        ar = max(2 * network.ring(gradients / z, members) for members in alike)
        u = over(layers, group["update"])
        add_t, add_y = [
            (0.0, e * 2 * all_rs + u),
            (0.0, e * (rs + ar + ag) + u / z),
            (e * rs, e * (ar + ag) + u / z),
            (e * (rs + 2 * ag), e * ar + u / z),
        ][zero]
        t += add_t
        y += add_y
    return t, y


def transfer_time(network: Network, cuts: tuple[float, float], levels: tuple[int, int]) -> float:
    """Activations arriving in front and gradients arriving behind."""
    return sum(network.point_to_point(size, level) for size, level in zip(cuts, levels, strict=True))


def memory(
    problem: dict, candidate: dict, setting: Setting, layers, recompute: str, zero: int, flying: int, cut: float
) -> float:
    """Bytes on each device of a stage, the reserve included; `cut` is what arrives in front of it."""
    total = given(problem["cluster"], "reserve", 0.0)
    for group in candidate["state"].values():
        z = setting.shards(group["ranks"])
        total += over(layers, group["weights"]) / (z if zero >= 3 else 1)
        total += over(layers, group["gradients"]) / (z if zero >= 2 else 1)
        total += over(layers, group["optimizer"]) / (z if zero >= 1 else 1)
    mode = candidate["recompute"][recompute]
    stashed = cut if given(mode, "stash_inputs", False) else 0.0
    total += over(layers, mode["first"]) + max(mode["peak"][layer] for layer in layers)
    return total + (flying - 1) * (over(layers, mode["more"]) + stashed)


def cuts_around(problem: dict, candidate: dict, sets, stage: int) -> tuple[float, float]:
    """Bytes that a device of this candidate's block takes in from in front and from behind of a stage, counted from 1.

    `sets` are the downsets `D_1, ..., D_s, D_{s+1}`.
    """
    edges = problem["profile"]["edges"]
    before, behind = sets[stage - 1], sets[stage]
    return cut_bytes(before, edges, candidate["edge_bytes"]), cut_bytes(behind, edges, candidate["edge_bytes"])
