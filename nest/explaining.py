"""Why a plan is what it is: what it runs into, what restrictions cost, what comes next, and what would change it."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from attrs import evolve, field, frozen

from nest import planner
from nest.errors import InputError
from nest.formulate.given import Source
from nest.formulate.self_contained import carried_problem
from nest.hooks.registry import Registry, registry
from nest.questions.alternatives import Alternative, Question, alternative, questions
from nest.questions.asked import require_held
from nest.questions.binding import Binding, binding
from nest.questions.figured import figured
from nest.questions.flips import Flip, flip, turns
from nest.questions.outcome import decided_values, plan_label
from nest.questions.prices import Price, price, restrictions
from nest.questions.solver import Solver
from nest.report.runner_up import apart
from nest.solve.effort import check_effort
from nest.spec import PlanDocument
from nest.tolerances import BANDWIDTH_SHORTFALL, PROOF

PARTS = ("binding", "constraints", "alternatives", "flips")
"""What an explanation consists of, in the order in which it is told."""

SOLVES_OF_A_FLIP = 3
"""That a flip takes about as many solves as so many other questions; for progress only."""

Answer = TypeVar("Answer")

Told = Callable[[str, float], None]
"""Told what is being asked, and which share of the questions is answered."""

Ready = Callable[[str, "Explanation"], None]
"""Told which of `nest.report.text.explanation.STEPS` is done, with the explanation so far."""


@frozen
class Explanation:
    """Why a plan is what it is.

    Attributes:
        plan: the plan asked about.
        best: the best plan of its problem; the plan itself where that was searched to the end.
        parts: which of `PARTS` were asked for.
        binding: what the plan runs into.
        prices: what each restriction of the problem costs the best plan.
        alternatives: for each decision of the plan, the best plan in which it differs.
        flips: values at which another plan becomes the best.
        solves: searches it took.
        decided: what the plan decides, by name: one value, or one for each stage; nothing of an infeasible one.
        best_decided: what the best plan decides.
    """

    plan: PlanDocument
    best: PlanDocument
    parts: tuple[str, ...]
    binding: tuple[Binding, ...] = ()
    prices: tuple[Price, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    flips: tuple[Flip, ...] = ()
    solves: int = 0
    decided: Mapping[str, tuple[str, ...]] = field(factory=dict)
    best_decided: Mapping[str, tuple[str, ...]] = field(factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain mappings, lists and numbers; of plans their labels and times."""
        plan, best = self.plan, self.best
        return {
            "status": plan.status,
            "plan": None if plan.batch_time is None else plan_label(plan),
            "batch_time": plan.batch_time,
            "loses": self.loses(),
            "apart": apart(plan),
            "diagnosis": plan.diagnosis,
            "best_batch_time": best.batch_time,
            "best_status": best.status,
            "best_diagnosis": best.diagnosis,
            "searched": plan.lower_bound is not None or plan.status == "infeasible",
            "parts": list(self.parts),
            "binding": [{"name": each.name, **each.figures} for each in self.binding],
            "constraints": [each.to_dict() for each in self.prices],
            "alternatives": [each.to_dict() for each in self.alternatives],
            "flips": [each.to_dict() for each in self.flips],
            "solves": self.solves,
            "decided": {name: list(values) for name, values in self.decided.items()},
            "best_decided": {name: list(values) for name, values in self.best_decided.items()},
        }

    def loses(self) -> dict[str, Any] | None:
        """The bandwidths of which the plan needs the last per cents, where it is known that it loses without them.

        Flips of the plan come first: where they were not asked for or none is as near, its `runner_up` says it. `to` is
        that one's label; None: what wins is in the flips.
        """
        near = [each.parameter for each in self.flips if each.is_within(BANDWIDTH_SHORTFALL)]
        stated = self.plan.runner_up or {}
        if near and self.best.batch_time == self.plan.batch_time:
            to = None
        else:
            near, to = [f"bandwidth of {each['level']}" for each in stated.get("wins_if", ())], stated.get("label")
        return {"to": to, "less": BANDWIDTH_SHORTFALL, "bandwidths": near} if near else None


def explain(
    plan: Source | PlanDocument,
    *,
    only: Iterable[str] = (),
    time_limit: float | None = None,
    progress: Told | None = None,
    plugins: Registry | None = None,
    ready: Ready = lambda *_: None,
) -> Explanation:
    """Why a plan whose numbers hold is what it is; every answer is a search of a changed problem.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`; may be infeasible.
        only: parts asked for, of `PARTS`; none: all.
        time_limit: seconds for each search, after which its best plan so far counts; None: as long as it takes.
        progress: told what is being asked, and which share of the questions is answered.
        plugins: registered strategies and the like; left out, those installed.
        ready: told of each step that is done; once more of each after a plug-in that turned out to be faulty was set
            aside.

    Raises:
        InputError: the plan cannot be read or does not hold, a faster one shows that it is wrongly called optimal, or
            there is no such part.
    """
    known = plugins or registry()
    check_effort(time_limit)
    wanted = tuple(only) or PARTS
    for name in wanted:
        if name not in PARTS:
            raise InputError(f"there is no part {name!r} of an explanation; the parts are {', '.join(PARTS)}.")
    parts = tuple(part for part in PARTS if part in wanted)
    return known.run(lambda: _explain(plan, parts, time_limit, progress, known, ready))


def _explain(
    plan: Source | PlanDocument,
    parts: tuple[str, ...],
    time_limit: float | None,
    progress: Told | None,
    known: Registry,
    ready: Ready,
) -> Explanation:
    read = planner.read_plan(plan)
    if read.status != "infeasible":
        require_held(plan, read, known, "so it is not explained")
    line = _Progress(progress)
    solver = Solver(known, time_limit=time_limit, progress=line.solving)
    problem = carried_problem(read, known)
    read = figured(read, problem, known)
    if read.status in ("optimal", "infeasible"):
        solver.know(problem, read)
    found = Explanation(read, read, parts, decided=decided_values(read, known))
    ready("plan", found)
    found = evolve(found, binding=binding(read, known) if "binding" in parts else ())
    ready("binding", found)
    asks_for_best = any(part in parts for part in ("constraints", "flips"))
    best = (solver.plan(problem, "the best plan", read) if asks_for_best else None) or read
    found = evolve(found, best=best, best_decided=decided_values(best, known))
    ready("best", found)
    asked = questions(read, problem, known) if "alternatives" in parts and read.batch_time is not None else ()
    priced = restrictions(problem, solver) if "constraints" in parts else ()
    varied = turns(best, problem, known) if "flips" in parts else ()
    line.expect(len(asked) + len(priced) + SOLVES_OF_A_FLIP * len(varied))
    found = evolve(found, prices=tuple(line.after(1, partial(price, best, each, solver)) for each in priced))
    ready("constraints", found)
    found = evolve(found, alternatives=tuple(line.after(1, partial(unrefuted, read, each, solver)) for each in asked))
    ready("alternatives", found)
    flips = (line.after(SOLVES_OF_A_FLIP, partial(flip, best, problem, each, solver)) for each in varied)
    found = evolve(found, flips=tuple(flips), solves=solver.solves)
    ready("flips", found)
    ready("loses", found)
    return found


def unrefuted(plan: PlanDocument, question: Question, solver: Solver) -> Alternative:
    """The answer to a question about a plan, which does not show that the plan is wrongly called the best.

    Raises:
        InputError: it does.
    """
    found = alternative(plan, question, solver)
    relative = found.outcome.relative
    if plan.status == "optimal" and relative is not None and relative < -PROOF:
        raise InputError(
            f"the plan says that it is optimal, but with {found.asked} there is one that takes {-relative:.2g} of its "
            "time less: it was changed, or made by another version. Solve its problem again."
        )
    return found


class _Progress:
    """Which share of the questions is answered."""

    def __init__(self, told: Told | None) -> None:
        self._told, self._done, self._of = told, 0, 1

    def expect(self, questions: int) -> None:
        """How many questions there are."""
        self._of = max(questions, 1)

    def solving(self, asking: str, _: int) -> None:
        """Tell what is asked."""
        if self._told is not None:
            self._told(asking, self._done / self._of)

    def after(self, questions: int, answer: Callable[[], Answer]) -> Answer:
        """The answer; so many questions are answered then."""
        found = answer()
        self._done += questions
        return found
