"""Compare the planner's first plan with the oracle's simplest plan on random problems of every kind.

`python -m tests.agreement.simplest --seed S --count N [--kind KIND]`
"""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random

from tests.agreement.compare import as_json, complaint, left_open, planner, plugins_of, solved
from tests.agreement.draws import ROUNDING, SHARES, Draw, answer_of, draw
from tests.agreement.fuzz import compare_kinds, proved
from tests.oracle import pools
from tests.oracle import price as alone
from tests.oracle.check import check_document, plan_of, same
from tests.oracle.simplicity import Simplest, key, simplest, spelled_out

KINDS = (*(kind for kind in SHARES if kind != "target"), "pools")
"""What is usual for a target, its framework says."""
WITHIN = (0.01, 0.1, 0.5)
ALIKE = 1e-9
"""Step times that differ by no more than this share are the same."""


BESIDE = ("fastest", "safer", "simpler")
COSTS_LITTLE = 0.05
"""So much longer than the first plan a simpler one may take to be told of."""
STRUCTURE = 10
"""Entries of the key that make a plan simpler by itself."""
FEW_PLANS = 600
"""So many plans at most are priced one by one."""


@dataclass(frozen=True)
class Case:
    """A drawn problem whose first plan may be slower by a share of the least step time."""

    drawn: Draw
    within: float

    @property
    def problem(self) -> dict:
        problem = self.drawn.problem
        return {**problem, "search": {**(problem.get("search") or {}), "within": self.within}}

    @cached_property
    def expected(self) -> Simplest:
        """The simplest plan by the oracle."""
        found = simplest(self.drawn.problem, self.within, self.drawn.answer.batch_time)
        assert found is not None
        return found


def case(seed: int, kind: str | None = None) -> Case:
    """The problem of a seed; of kinds in turn where none is named."""
    return Case(draw(seed, kind or KINDS[seed % len(KINDS)]), Random(f"within of {seed}").choice(WITHIN))


def document_of(problem: dict, **options) -> dict:
    """The planner's answer as its reader gets it."""
    return as_json(solved(problem, **options).to_dict())


def disagreements(case: Case, *, checked: bool = True, verify: bool = False) -> list[str]:
    """What the planner says of the first plan and the oracle does not; empty when they agree.

    Args:
        case: the problem.
        checked: whether `nest check` has to accept the plan.
        verify: whether CP-SAT has to prove the bound, and that the plan is near it.
    """
    document, answer = document_of(case.problem, **({"verify": True} if verify else {})), case.drawn.answer
    if answer.plan is None:
        return [] if document["status"] == "infeasible" else [f"status is {document['status']}, but there is no plan"]
    if document["batch_time"] is None:
        return [f"status is {document['status']}, but there is a plan"]
    if left_open(case.problem, document, answer):
        return []
    least, found = answer.batch_time, document["batch_time"]
    known = {**document, "problem": {**document["problem"], "schedules": case.problem.get("schedules") or {}}}
    expected, own = case.expected, key(known["problem"], plan_of(known))
    wrong = check_document(known)
    if not same(document["lower_bound"], least):
        wrong.append(f"lower_bound is {document['lower_bound']!r}, the oracle finds {least!r}")
    if found > least * (1 + case.within) * (1 + ALIKE):
        wrong.append(f"batch_time is {found!r}, more than {1 + case.within} times {least!r}")
    if own != expected.key:
        wrong.append(f"the key is {own}, that of {expected.plan} is {expected.key}")
    elif not same(found, expected.batch_time):
        wrong.append(f"batch_time is {found!r}, with the same key there is {expected.batch_time!r}")
    status = "optimal" if same(found, least) else "near-optimal"
    if document["status"] != status:
        wrong.append(f"status is {document['status']}, but should be {status}")
    if verify and (document["verification"] or {}).get("status") != "proved":
        wrong.append(f"CP-SAT does not prove the answer: {document['verification']}")
    if checked and not (report := planner().check(document, **plugins_of(case.problem))).ok:
        wrong.append(f"nest check refuses the plan: {report}")
    wrong += wrong_fastest(document, least) + wrong_simpler(case, known)
    wrong += [line for name in BESIDE if document.get(name) for line in wrong_beside(known, name)]
    return wrong or fuller_than_needed(case, document)


def wrong_fastest(document: dict, least: float) -> list[str]:
    """What is wrong with what the document says of the fastest plan."""
    fastest = document.get("fastest")
    if document["status"] != "near-optimal":
        return [] if fastest is None else ["an optimal plan says that another is the fastest"]
    if fastest is None:
        return ["a near-optimal plan does not say which is the fastest"]
    apart = fastest["batch_time"] / document["batch_time"] - 1
    wrong = [] if same(fastest["batch_time"], least) else [f"fastest takes {fastest['batch_time']!r}, not {least!r}"]
    if abs(fastest["slower_by"] - apart) > ALIKE:
        wrong.append(f"fastest is said to be {fastest['slower_by']!r} slower, but is {apart!r}")
    return wrong


def beside(document: dict, name: str) -> dict:
    """Another plan that the document tells of, in the oracle's own form."""
    return plan_of({**document, **document[name]["decisions"]})


def wrong_beside(document: dict, name: str) -> list[str]:
    """What is wrong with the numbers of another plan that the document tells of."""
    problem, stated, plan = document["problem"], document[name], beside(document, name)
    module = pools if pools.has_pools(problem) else alone
    numbers, wrong = module.price(problem, plan), module.violations(problem, plan)
    memory = max(stage["memory"] for stage in numbers["stages"])
    wrong = [f"{name} breaks a rule: {rule}" for rule in wrong]
    if not numbers["fits"]:
        wrong.append(f"{name} exceeds the memory")
    for name_of, expected in (("batch_time", numbers["batch_time"]), ("memory", memory)):
        if not same(stated[name_of], expected):
            wrong.append(f"{name}.{name_of} is {stated[name_of]!r}, the oracle says {expected!r}")
    return wrong


def wrong_simpler(case: Case, document: dict) -> list[str]:
    """Whether what is simpler than the first plan, for at most `COSTS_LITTLE`, is told, and nothing else."""
    problem, least = document["problem"], case.drawn.answer.batch_time
    share = (1 + COSTS_LITTLE) * document["batch_time"] / least - 1
    found = {simplest(case.drawn.problem, each, least).key[:STRUCTURE] for each in (share - ALIKE, share + ALIKE)}
    own, stated = key(problem, plan_of(document))[:STRUCTURE], document.get("simpler")
    told = own if stated is None else key(problem, beside(document, "simpler"))[:STRUCTURE]
    if told in found and (stated is None) == (told == own):
        return []
    return [f"simpler has the key {told}, the plan {own}, the oracle finds {found}"]


def fuller_than_needed(case: Case, document: dict) -> list[str]:
    """Whether an equally fast plan with the same key needs fewer bytes on its fullest stage; of few plans, by all.

    Of plans of several chunks the documented order decides (`nest.solve.dp.ties`).
    """
    if pools.has_pools(case.problem) or document["chunks"] > 1:
        return []
    try:
        expected = spelled_out(case.drawn.problem, case.within, FEW_PLANS)
    except OverflowError:
        return []
    memory = max(stage["memory"] for stage in document["stages"])
    if expected is None or expected.memory is None or memory <= expected.memory * (1 + ALIKE):
        return []
    return [f"the fullest stage needs {memory!r} bytes, that of {expected.plan} {expected.memory!r}"]


def slower_without(case: Case) -> list[str]:
    """Whether without a share the price is another than the least."""
    document = document_of({**case.problem, "search": {**case.problem["search"], "within": 0}})
    least = case.drawn.answer.batch_time
    if left_open(case.problem, document, case.drawn.answer) or same(document["batch_time"], least):
        return []
    return [f"without a share batch_time is {document['batch_time']!r}, the oracle finds {least!r}"]


def hangs_on_rounding(case: Case) -> bool:
    """Whether the answer is another with a memory or a share larger or smaller by what rounding may make."""
    found = []
    for fits in ROUNDING:
        least = answer_of(case.drawn.problem, None, fits).batch_time
        shares = [case.within - ALIKE, case.within + ALIKE]
        found += [None if least is None else simplest(case.drawn.problem, within, least, fits) for within in shares]
    if None in found:
        return set(found) != {None}
    first = found[0]
    return any(
        each.key != first.key or not same(each.batch_time, first.batch_time) or not same(each.least, first.least)
        for each in found
    )


def marks(case: Case) -> Iterator[str]:
    """What to count a problem under."""
    yield "all"
    yield f"kind: {case.drawn.kind}"
    answer, problem = case.drawn.answer, case.drawn.problem
    if answer.plan is None:
        yield "answer: no plan"
        return
    yield f"within: {case.within}"
    expected = case.expected
    if not same(expected.batch_time, answer.batch_time):
        yield "answer: a slower plan, which is simpler"
    elif expected.key < key(problem, answer.plan):
        yield "answer: a simpler plan, as fast"
    else:
        yield "answer: the fastest plan"


def examine(seed: int, kind: str | None = None) -> tuple[Counter[str], list[str]]:
    """What a problem counts under, and the disagreements on it; an exception is one."""
    asked = case(seed, kind)
    counts = Counter(marks(asked))
    try:
        wrong = disagreements(asked, verify=proved(asked.drawn))
        wrong += slower_without(asked)
    except Exception as error:
        wrong = [f"{type(error).__name__}: {error}"]
    if wrong and hangs_on_rounding(asked):
        return counts + Counter(["hangs on rounding"]), []
    if wrong:
        counts["disagree"] += 1
        wrong = [complaint(f"seed {seed}, {asked.drawn.kind} {asked.drawn.corners}", asked.problem, wrong)]
    return counts, wrong


if __name__ == "__main__":
    sys.exit(compare_kinds(__doc__.splitlines()[0], KINDS, examine))
