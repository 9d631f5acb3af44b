"""Compare what the planner and the oracle say a problem lacks, where no device has the memory that any plan needs.

`python -m tests.agreement.starved --seed S --count N [--kind KIND]`
"""

import sys
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from random import Random

from tests.agreement.compare import complaint, disagreements
from tests.agreement.draws import Draw, answer_of
from tests.agreement.fuzz import compare_kinds
from tests.agreement.parts import KINDS, drawn
from tests.oracle.pools import has_pools

ALIKE = "uniform(recompute)"


def starved(seed: int, kind: str | None = None, *, alike: bool = False) -> Draw | None:
    """The problem of a seed, with parts, where memory alone forbids every plan; None: something else does.

    Where `alike`, all stages must recompute alike.
    """
    asked, random = drawn(seed, kind), Random(f"starved {seed}")
    problem = deepcopy(asked.problem)
    if alike and ALIKE not in problem.get("constraints", []):
        problem["constraints"] = [*problem.get("constraints", []), ALIKE]
    for each in problem["cluster"].get("pools", [problem["cluster"]]):
        each["memory"] = each.get("reserve", 0.0) + 1e-3
    answer = answer_of(problem, None)
    if answer.plan is not None or answer.reachable_memory is None:
        return None
    if not has_pools(problem):
        share = random.choice([0.5, 0.94, 0.99])
        problem["cluster"]["memory"] = max(answer.reachable_memory * share, problem["cluster"]["memory"])
    return replace(asked, problem=problem, answer=answer)


def examine(seed: int, kind: str | None = None) -> tuple[Counter[str], list[str]]:
    """What a problem counts under, and the disagreements on it; an exception is one."""
    # Neighbours are of different kinds.
    asked = starved(seed, kind, alike=seed // len(KINDS) % 2 == 0)
    if asked is None:
        return Counter(["all", "answer: not for lack of memory"]), []
    counts = Counter(["all", f"kind: {asked.kind}"])
    try:
        wrong = disagreements(asked.problem, asked.answer, checked=False)
    except Exception as error:
        wrong = [f"{type(error).__name__}: {error}"]
    if wrong:
        counts["disagree"] += 1
        wrong = [complaint(f"seed {seed}, {asked.kind} {asked.corners}", asked.problem, wrong)]
    return counts, wrong


if __name__ == "__main__":
    sys.exit(compare_kinds(__doc__.splitlines()[0], KINDS, examine))
