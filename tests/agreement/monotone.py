"""A better cluster is never slower: pairs of random problems that differ in nothing else.

`python -m tests.agreement.monotone --seed S --count N`
"""

import argparse
from copy import deepcopy
from random import Random
from typing import Any

from nest import api
from tests.agreement.problems import KINDS, random_problem

APART = 1e-9
"""Share by which the better cluster may be slower: two computations of one time (docs/explanation/numbers.md)."""


def better(random: Random, problem: dict[str, Any]) -> dict[str, Any]:
    """The problem on a cluster that is better in some numbers and worse in none."""
    changed = deepcopy(problem)
    cluster = changed["cluster"]
    while cluster == problem["cluster"]:
        for level in cluster["levels"]:
            if random.random() < 0.5:
                level["bandwidth"] *= random.choice([1.01, 1.5, 10.0])
            if random.random() < 0.3:
                level["latency"] = level.get("latency", 0.0) * random.choice([0.0, 0.5, 0.99])
        if random.random() < 0.5:
            cluster["memory"] *= random.choice([1.001, 1.1, 2.0])
    return changed


def pair(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A problem, and the same on a better cluster."""
    random = Random(f"monotone {seed}")
    problem = random_problem(random, random.choice(KINDS))
    return problem, better(random, problem)


def slower(seed: int) -> str | None:
    """What is wrong with a pair: the better cluster has no plan, or a slower one, or claims a bound that is beaten."""
    worse, other = (api.solve(each) for each in pair(seed))
    if worse.batch_time is None:
        return None
    if other.batch_time is None:
        return f"seed {seed}: no plan on the better cluster, {worse.batch_time} s on the worse"
    if other.batch_time > worse.batch_time * (1 + APART):
        return f"seed {seed}: {other.batch_time} s on the better cluster, {worse.batch_time} s on the worse"
    return None


def main() -> None:
    """Try pairs, and print those that are wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    wrong = [told for seed in range(options.seed, options.seed + options.count) if (told := slower(seed)) is not None]
    print(*wrong, f"{options.count} pairs, {len(wrong)} wrong", sep="\n")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
