"""Busy ports of random candidates: seconds that compare with the layers' times, and at times exceed them."""

from random import Random

LARGEST, LEAST = 1e30, 1e-30
"""Of the numbers of a profile that are not 0."""


def occupy(random: Random, problem: dict) -> None:
    """Let most candidates say how long their collectives occupy ports; of what is sent, let some often hide.

    A stage then takes as long as its busiest port, which depends on its layers, modes and boundaries.
    """
    levels = len(problem["cluster"]["levels"])
    candidates = problem["profile"]["candidates"]
    scale = random.choice([0.6, 1.2, 1.6])
    told = [candidate for candidate in candidates if random.random() < 0.85] or candidates[:1]
    for candidate in told:
        pairs = zip(candidate["forward"], candidate["backward"], strict=True)
        times = [forward + backward for forward, backward in pairs]
        candidate["busy"] = [busy_row(random, times, scale) for _ in range(levels)]
        for mode in candidate["recompute"].values():
            if any(mode["extra"]) and random.random() < 0.6:
                mode["busy"] = [busy_row(random, mode["extra"], scale) for _ in range(levels)]
    if random.random() < 0.4:
        problem["training"]["exposed"] = random.choice([0.0, 0.0, 0.3])


def busy_row(random: Random, times: list[float], scale: float) -> list[float]:
    """Seconds at one level for layers that take so long; now and then none, or whatever the layer takes."""
    kind = random.random()
    if kind < 0.15:
        return [0.0] * len(times)
    if kind < 0.3:
        times = [sum(times) / len(times)] * len(times)
    if kind < 0.5:
        return [min(time * scale, LARGEST) for time in times]
    rows = [min(time * scale * random.choice([0.0, 1.0, random.random()]), LARGEST) for time in times]
    return [each if each >= LEAST else 0.0 for each in rows]
