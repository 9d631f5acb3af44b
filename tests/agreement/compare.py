"""One problem, solved by the planner and by the oracle; what they disagree about.

The planner is reached through its public interface alone, and imported only when it is used.
"""

import json
import re
from collections.abc import Sequence
from types import ModuleType

from tests.oracle.brute_force import TIE, Answer, solve
from tests.oracle.check import check_document, same
from tests.oracle.makespan import replayed
from tests.oracle.pools import has_pools
from tests.oracle.pools import solve as solve_on_pools
from tests.oracle.price import candidates_of
from tests.oracle.schedules import pipeline_of
from tests.oracle.settings import schedules_of

NUMBER = re.compile(r"\d+\.?\d*(?:e[+-]?\d+)?")


def planner() -> ModuleType:
    """The planner's public interface."""
    import nest

    return nest


def plugins_of(problem: dict) -> dict:
    """How the planner is told of the schedules that a problem's plug-in brings."""
    if not problem.get("schedules"):
        return {}
    from tests.agreement.drawn_schedules import registered

    return {"plugins": registered(problem)}


def solved(problem: dict, **options):
    """The planner's plan of a problem, with the schedules that its plug-in brings."""
    asked = {key: value for key, value in problem.items() if key != "schedules"}
    return planner().solve(asked, **options, **plugins_of(problem))


def as_json(document: dict) -> dict:
    """The document as its reader gets it."""
    return json.loads(json.dumps(document, allow_nan=False))


def devices_used(problem: dict, plan: dict) -> tuple[int, ...]:
    """Devices, stages and pools of a plan: what ties are broken by (PROBLEM.md sections 5 and 8)."""
    chosen = candidates_of(problem, plan)
    devices = plan["replicas"] * sum(candidate["width"] for candidate in chosen)
    return devices, len(plan["stages"]), len({candidate.get("pool") for candidate in chosen})


def check_tie(document: dict, answer: Answer) -> list[str]:
    """Among plans equally fast, the planner takes the fewest devices, then the fewest stages."""
    problem = document["problem"]
    if document["batch_time"] > answer.batch_time * TIE:
        return []
    stages = document["stages"]
    devices = document["data_parallel"] * sum(stage["devices"][1] for stage in stages)
    found = (devices, len(stages), len({stage.get("pool") for stage in stages}))
    expected = devices_used(problem, answer.plan)
    if found == expected:
        return []
    return [f"uses {found} (devices, stages, pools), but {expected} is as fast"]


def left_open(problem: dict, document: dict, answer: Answer) -> bool:
    """Whether the planner says that it left plans which only a replay tells apart, and its bound is one."""
    if document["status"] != "feasible" or answer.plan is None:
        return False
    replays = any(replayed(problem, pipeline_of(problem, name)) for name in schedules_of(problem))
    least = answer.batch_time
    return replays and document["lower_bound"] <= least * TIE and least <= document["batch_time"] * TIE


def check_diagnosis(document: dict, answer: Answer, held: Sequence[float] = (0.0,)) -> list[str]:
    """Where memory forbids every plan, the diagnosis names the least memory that would do.

    Of pools, whose devices hold `held` bytes, the oracle knows how much lacks.
    """
    numbers = [float(text) for text in NUMBER.findall(document["diagnosis"])]
    if any(same(number, answer.reachable_memory + each, 1e-5) for number in numbers for each in held):
        return []
    return [f"the diagnosis does not name {answer.reachable_memory!r} bytes: {document['diagnosis']}"]


def disagreements(
    problem: dict, answer: Answer | None = None, *, checked: bool = True, verify: bool = False
) -> list[str]:
    """What the planner says of this problem and the oracle does not; empty when they agree.

    Three of the planner's numbers for a plan are compared to 1e-9: the solver's with that of its pricing (`nest.solve`
    raises where they differ), the pricing's with the oracle's (`check_document`), and those of `nest check`.

    Args:
        problem: to be solved.
        answer: the oracle's, where it is known.
        checked: whether `nest check` has to accept the plan.
        verify: whether CP-SAT has to prove the answer.
    """
    document = as_json(solved(problem, **({"verify": True} if verify else {})).to_dict())
    answered = {**document, "problem": {**document["problem"], "schedules": problem.get("schedules") or {}}}
    answer = answer or (solve_on_pools if has_pools(problem) else solve)(problem)
    wrong = []
    closed = not left_open(problem, document, answer)
    if closed and not same(document["batch_time"], answer.batch_time):
        wrong.append(f"batch_time is {document['batch_time']!r}, the oracle finds {answer.batch_time!r}")
    expected = "infeasible" if answer.plan is None else "optimal"
    if closed and document["status"] != expected:
        wrong.append(f"status is {document['status']}, the oracle says {expected}")
    wrong += check_document(answered)
    if closed and not wrong and answer.plan is not None:
        wrong += check_tie(answered, answer)
    if not wrong and answer.reachable_memory is not None:
        pools = problem["cluster"].get("pools", ())
        wrong += check_diagnosis(document, answer, [pool["memory"] for pool in pools] or [0.0])
    if verify and closed and document["verification"]["status"] != "proved":
        wrong.append(f"CP-SAT does not prove the answer: {document['verification']}")
    if checked and not (report := planner().check(document, **plugins_of(problem))).ok:
        wrong.append(f"nest check refuses the plan: {report}")
    return wrong


def complaint(name: str, problem: dict, wrong: list[str]) -> str:
    """What a person needs to look into a disagreement."""
    return "\n".join([f"{name}:", *(f"  {line}" for line in wrong), json.dumps(problem, default=vars)])
