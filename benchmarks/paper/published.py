"""What the paper and its artifact state, retyped (scai-tech/Nest, commit 3e163ad).

Shares of throughput, printed with two or three decimals; None: no plan, or none that fits.
"""

from statistics import geometric_mean

COLUMNS = ("manual", "mcmc", "alpa-e", "phaze", "nest")
"""The paper's planners in the order of its tables, by our names; `nest` is its own algorithm, ours `nest-paper`."""

Row = tuple[float | None, float | None, float | None, float | None, float | None]

FIGURE_5: dict[str, tuple[Row, ...]] = {
    "bert-large": (
        (1.00, 0.55, 0.42, 1.35, 1.35),
        (1.97, 1.05, 0.65, 2.70, 2.70),
        (3.84, 0.99, 0.85, 5.40, 5.40),
        (7.31, 9.39, 0.69, 10.81, 10.81),
        (13.31, 16.61, None, 21.61, 21.61),
    ),
    "llama-2-7b": (
        (1.00, 0.62, 1.25, 1.04, 1.25),
        (1.97, 1.23, 2.23, 2.15, 2.47),
        (3.84, 3.19, 2.40, 4.20, 4.81),
        (7.31, 8.65, 3.72, 8.01, 9.14),
        (13.31, 12.97, None, 14.42, 16.63),
    ),
    "llama-3-70b": (
        (None, 1.01, None, 1.01, 1.01),
        (1.00, 1.00, 3.00, 2.97, 2.97),
        (2.89, 2.89, 5.23, 5.77, 5.77),
        (5.48, 5.48, 8.38, 10.93, 10.94),
        (9.92, 9.92, None, 19.06, 20.51),
    ),
    "mixtral-8x7b": (
        (None, 0.68, 0.49, 0.68, 1.02),
        (1.00, 1.00, 0.88, 1.33, 2.00),
        (1.94, 2.60, 1.41, 2.60, 3.89),
        (3.68, 3.68, 1.83, 4.92, 7.38),
        (6.63, 6.63, None, 8.90, 13.35),
    ),
    "gpt3-175b": (
        (None, 0.57, None, 0.57, 0.67),
        (1.00, 1.12, 0.54, 1.14, 1.33),
        (1.99, 1.59, 1.23, 2.27, 2.65),
        (3.91, 4.58, 1.86, 4.47, 5.22),
        (7.60, 8.70, None, 9.03, 10.15),
    ),
}
"""Throughput over that of Manual at its smallest feasible size, on 64, 128, 256, 512 and 1,024 devices, micro-batch 1
(scripts/tpuv4_fatTree/reference_results.md, experiment 1)."""

FIGURE_6: dict[str, tuple[Row, ...]] = {
    "bert-large": (
        (1.00, 0.26, 0.22, 1.41, 1.41),
        (0.95, 0.11, 0.21, 1.41, 1.41),
        (0.87, 0.87, 0.26, 1.41, 1.41),
        (0.73, 0.24, 0.39, 1.41, 1.41),
    ),
    "llama-2-7b": (
        (1.00, 0.83, 0.63, 1.09, 1.25),
        (None, 0.62, 0.90, 1.62, 1.83),
        (None, None, 1.17, None, 2.25),
        (None, None, None, None, None),
    ),
    "llama-3-70b": (
        (1.00, 1.00, 1.81, 2.00, 2.00),
        (None, None, 1.96, 3.37, 3.37),
        (None, None, None, None, None),
        (None, None, None, None, None),
    ),
}
"""Throughput over that of Manual with micro-batches of 1, for 1, 2, 4 and 8, on 256 devices (there, experiment 2)."""

TABLE_3: dict[tuple[str, int], Row] = {
    ("mixtral-8x7b", 1024): (1.000, 1.324, None, 1.215, 1.519),
    ("mixtral-8x7b", 128): (1.000, 0.749, None, 1.202, 1.503),
    ("gpt3-175b", 128): (1.000, 1.000, None, 1.143, 1.334),
}
"""Throughput over that of Manual at the same size (README.md, experiments 3.1 to 3.3; no Alpa-E there)."""

RUN_SECONDS = {
    "bert-large": (54, 62, 117, 217, 424),
    "llama-2-7b": (181, 52, 60, 69, 96),
    "llama-3-70b": (124, 59, 96, 153, 279),
    "mixtral-8x7b": (208, 170, 168, 210, 281),
    "gpt3-175b": (307, 321, 1099, 4485, 13361),
}
"""Run time of the whole experiment, seconds, by devices as in `FIGURE_5` (the same file's column Runtime; on an H100
machine). Of Alpa-E: "up to 20 hours per experiment" (scripts/alpa/README.md)."""

HEADLINE = 2.43
"""Times the throughput of others: "up to 2.43 times higher throughput" (arXiv 2603.06798, abstract)."""


def headline() -> dict[str, tuple[int, float, float]]:
    """For each baseline of Figure 5, cells in which both have a plan, and NEST's gain: geometric mean and largest."""
    found = {}
    for place, name in enumerate(COLUMNS[:-1]):
        pairs = [(row[-1], row[place]) for rows in FIGURE_5.values() for row in rows]
        gains = [ours / theirs for ours, theirs in pairs if ours and theirs]
        found[name] = len(gains), geometric_mean(gains), max(gains)
    return found


Degrees = tuple[int, int, int]
"""Tensor parallelism, stages, replicas."""

DEGREES: dict[str, dict[str, tuple[Degrees, ...]]] = {
    "bert-large": {
        "manual": ((1, 8, 8), (1, 8, 16), (1, 8, 32), (1, 8, 64), (1, 8, 128)),
        "mcmc": ((2, 5, 6), (2, 3, 21), (4, 3, 21), (1, 2, 256), (1, 5, 204)),
        "phaze": ((1, 1, 64), (1, 1, 128), (1, 1, 256), (1, 1, 512), (1, 1, 1024)),
    },
    "llama-2-7b": {
        "manual": ((1, 8, 8), (1, 8, 16), (1, 8, 32), (1, 8, 64), (1, 8, 128)),
        "mcmc": ((1, 32, 2), (1, 32, 4), (1, 16, 16), (1, 11, 46), (1, 9, 98)),
        "phaze": ((1, 6, 10), (1, 6, 21), (1, 6, 42), (1, 6, 85), (1, 6, 164)),
    },
    "llama-3-70b": {
        "manual": ((1, 80, 1), (1, 80, 1), (1, 80, 3), (1, 80, 6), (1, 80, 12)),
        "mcmc": ((1, 41, 1), (1, 80, 1), (1, 80, 3), (1, 80, 6), (1, 80, 12)),
        "phaze": ((1, 41, 1), (1, 41, 3), (1, 41, 6), (1, 41, 12), (1, 41, 23)),
    },
    "mixtral-8x7b": {
        "manual": ((1, 32, 1), (1, 32, 1), (1, 32, 2), (1, 32, 4), (1, 32, 8)),
        "mcmc": ((1, 16, 1), (1, 32, 1), (1, 16, 4), (1, 32, 4), (1, 32, 8)),
        "phaze": ((1, 16, 1), (1, 16, 2), (1, 16, 4), (1, 16, 8), (1, 16, 16)),
    },
    "gpt3-175b": {
        "manual": ((4, 32, 1), (4, 32, 1), (4, 32, 2), (4, 32, 4), (4, 32, 8)),
        "mcmc": ((4, 16, 1), (8, 8, 2), (4, 24, 2), (8, 9, 7), (8, 9, 14)),
        "phaze": ((4, 16, 1), (4, 16, 2), (4, 16, 4), (4, 16, 8), (4, 16, 16)),
    },
}
"""Degrees of the baselines' plans of Figure 5, by devices (nest/Solver/baselines_tpuv4_fatTree, `t`, `p` and `d`).
Mixtral's blocks also spread experts over 4 devices (nest/Estimator/estimates_tpuv4_fatTree/mixtral, `ep_4`)."""
