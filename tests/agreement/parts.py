"""Compare the planner with brute force, CP-SAT and replays where stages may recompute some of their layers.

`python -m tests.agreement.parts --seed S --count N [--kind KIND]`
"""

import sys
from collections import Counter
from collections.abc import Iterator

from tests.agreement.compare import as_json, complaint, disagreements, planner, plugins_of, solved
from tests.agreement.draws import APART, Draw, draw, hangs_on_rounding
from tests.agreement.fuzz import compare_kinds
from tests.oracle.makespan import replayed
from tests.oracle.schedules import pipeline_of

KINDS = ("plain", "chunked", "mixed", "uneven", "sharded", "schedules", "sharded mixed", "mixed schedules", "pools")
"""In turn."""
VERIFY_EVERY = 10
"""CP-SAT has to prove the answer of one problem in so many."""
REPLAYED = 1e-9
"""What is replayed takes as long as the plan says, but for rounding."""


def drawn(seed: int, kind: str | None = None) -> Draw:
    """The problem of a seed; of kinds in turn where none is named."""
    return draw(seed, kind or KINDS[seed % len(KINDS)], parts=True)


def proved(asked: Draw) -> bool:
    """Whether CP-SAT has to prove the answer."""
    return asked.seed % VERIFY_EVERY == 0 and asked.kind not in APART


def examine(seed: int, kind: str | None = None) -> tuple[Counter[str], list[str]]:
    """What a problem counts under, and the disagreements on it; an exception is one."""
    asked = drawn(seed, kind)
    counts = Counter(marks(asked))
    try:
        wrong = disagreements(asked.problem, asked.answer, verify=proved(asked)) or replay_disagreements(asked)
    except Exception as error:
        wrong = [f"{type(error).__name__}: {error}"]
    if wrong and hangs_on_rounding(asked):
        return counts + Counter(["hangs on rounding"]), []
    if wrong:
        counts["disagree"] += 1
        wrong = [complaint(f"seed {seed}, {asked.kind} {asked.corners}", asked.problem, wrong)]
    return counts, wrong


def replay_disagreements(asked: Draw) -> list[str]:
    """Whether a plan that is priced by its replay takes that long in `nest simulate`."""
    problem, answer = asked.problem, asked.answer
    if answer.plan is None or not replayed(problem, pipeline_of(problem, answer.plan["schedule"])):
        return []
    plan = solved(problem)
    whole = planner().simulate(as_json(plan.to_dict()), **plugins_of(problem)).batch_time
    if whole <= plan.batch_time * (1 + REPLAYED):
        return []
    return [f"the replay takes {whole!r}, batch_time is {plan.batch_time!r}"]


def marks(asked: Draw) -> Iterator[str]:
    """What to count a problem under."""
    yield "all"
    yield f"kind: {asked.kind}"
    plan = asked.answer.plan
    if plan is None:
        yield "answer: no plan fits" if asked.answer.reachable_memory else "answer: rules leave no plan"
        return
    if proved(asked):
        yield "proved by CP-SAT"
    sizes = [len(stage["layers"]) for stage in plan["stages"]]
    parts = [stage["recompute"] for stage in plan["stages"] if not isinstance(stage["recompute"], str)]
    yield "answer: a plan with parts" if parts else "answer: a plan without parts"
    if len(set(parts)) > 1:
        yield "answer: a plan with several parts"
    if len(sizes) > 1 and parts:
        yield "answer: a plan of several stages with parts"


if __name__ == "__main__":
    sys.exit(compare_kinds(__doc__.splitlines()[0], KINDS, examine))
