"""Compare certificates with the oracle on many random problems, and those that somebody changed.

`python -m tests.agreement.certificates --seed S --count N [--kind KIND]`

Each problem has two mutations: a bound raised, a case dropped, a number of the instance changed, a plan swapped.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from tests.agreement.fuzz import compare_kinds
from tests.oracle.brute_force import solve

KINDS = ("plain", "chunked", "sharded", "uneven", "plain")
MUTATIONS = 2


def examine(seed: int, kind: str | None) -> tuple[Counter[str], list[str]]:
    """Count verdicts on the certificate of a problem and its mutations; list false claims and crashes."""
    from certificate_tests.certified import InputError, certificate_of, mutated, outcome
    from nest.errors import NoPlanYet

    kind = kind or KINDS[seed % len(KINDS)]
    counts, wrong = Counter({"all": 1, f"kind: {kind}": 1}), []
    try:
        made = certificate_of(kind, seed)
    except (InputError, NoPlanYet) as error:
        return counts + Counter({"not proved" if isinstance(error, NoPlanYet) else "not covered": 1}), wrong
    if made is None:
        return counts + Counter({"no plan, or several candidates": 1}), wrong
    problem, text = made
    least, accepted = solve(problem).batch_time, outcome(json.loads(text))
    counts["certificate accepted"] += accepted is not None
    if accepted is None or abs(accepted - least) > 2e-9 * least:
        wrong.append(f"seed {seed}, {kind}: the certificate claims {accepted}, the optimum is {least}")
    for number in range(MUTATIONS):
        try:
            claim, changed, _ = mutated(kind, seed, number)
        except Exception as error:
            wrong.append(f"seed {seed}, {kind}, mutation {number}: {type(error).__name__} {error}")
            continue
        counts["mutation accepted" if claim is not None else "mutation refused"] += 1
        least = solve(changed).batch_time if claim is not None else None
        if least is not None and claim > least * (1 + 1e-9):
            wrong.append(f"seed {seed}, {kind}, mutation {number}: {claim} is claimed, the optimum is {least}")
    counts["disagree"] += bool(wrong)
    return counts, wrong


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2] / "plugins" / "nest-certificate" / "tests"))
    sys.exit(compare_kinds(__doc__.splitlines()[0], sorted(set(KINDS)), examine))
