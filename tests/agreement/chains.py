"""Compare the planner with the chain program on many random chains.

`python -m tests.agreement.chains --count N --seed S`
"""

import argparse
import sys
from random import Random
from time import perf_counter

from tests.agreement.compare import as_json, check_diagnosis, complaint, planner
from tests.agreement.corners import push
from tests.agreement.random_chains import random_chain
from tests.oracle.chain_program import solve_chain
from tests.oracle.check import check_document, same


def draw_chain(seed: int, *, sharded: bool = False) -> dict:
    """The chain of a seed; every other one is in a corner."""
    random = Random(seed)
    problem = random_chain(random, sharded=sharded)
    if seed % 2:
        push(random, problem)
    return problem


def chain_disagreements(problem: dict) -> list[str]:
    """What the planner says of this chain and the chain program does not; empty when they agree."""
    answer = solve_chain(problem)
    document = as_json(planner().solve(problem).to_dict())
    wrong = check_document(document)
    if not same(document["batch_time"], answer.batch_time):
        wrong.append(f"batch_time is {document['batch_time']!r}, the chain program finds {answer.batch_time!r}")
    expected = "infeasible" if answer.plan is None else "optimal"
    if document["status"] != expected:
        wrong.append(f"status is {document['status']}, the chain program says {expected}")
    if not wrong and answer.reachable_memory is not None:
        wrong += check_diagnosis(document, answer)
    report = planner().check(document)
    if not report.ok:
        wrong.append(f"nest check refuses the plan: {report}")
    return wrong


def examine(problem: dict) -> list[str]:
    """Disagreements on a chain; an exception is one."""
    try:
        return chain_disagreements(problem)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="chains to compare")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first; the others follow it")
    arguments = parser.parse_args()
    start = perf_counter()
    disagree = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        problem = draw_chain(seed)
        if wrong := examine(problem):
            disagree += 1
            print(complaint(f"seed {seed}", problem, wrong))
    print(
        f"{arguments.count} chains from seed {arguments.seed}: {arguments.count - disagree} agree, "
        f"{disagree} disagree; {perf_counter() - start:.1f} s"
    )
    return 1 if disagree else 0


if __name__ == "__main__":
    sys.exit(main())
