"""Compare the planner with the oracle on many random problems.

`python -m tests.agreement.fuzz --count N --seed S --kind any|plain|mixed [--sharded]`
"""

import argparse
import sys
from collections import Counter
from random import Random
from time import perf_counter

from tests.agreement.compare import complaint, disagreements
from tests.agreement.problems import KINDS, random_problem


def examine(problem: dict) -> list[str]:
    """Disagreements on a problem; an exception is one."""
    try:
        return disagreements(problem)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="problems to compare")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first; the others follow it")
    parser.add_argument("--kind", choices=KINDS, default="any", help="whether the problems mix candidates")
    parser.add_argument("--sharded", action="store_true", help="let ZeRO choose among shard groups")
    parser.add_argument("--keep-going", action="store_true", help="do not stop after ten disagreements")
    arguments = parser.parse_args()
    start = perf_counter()
    outcome: Counter[str] = Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        problem = random_problem(Random(seed), arguments.kind, sharded=arguments.sharded)
        wrong = examine(problem)
        outcome["disagree" if wrong else "agree"] += 1
        if wrong:
            print(complaint(f"seed {seed}", problem, wrong))
            if outcome["disagree"] >= 10 and not arguments.keep_going:
                break
    print(
        f"{outcome.total()} problems from seed {arguments.seed}: {outcome['agree']} agree, "
        f"{outcome['disagree']} disagree; {perf_counter() - start:.1f} s"
    )
    return 1 if outcome["disagree"] else 0


if __name__ == "__main__":
    sys.exit(main())
