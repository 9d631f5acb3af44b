"""Explanation of a plan: its limits, the cost of restrictions, alternatives, and breakpoints."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from attrs import evolve, field, frozen

from nest.errors import InputError
from nest.hooks.protocols import Engine
from nest.public.changes import Solver
from nest.public.planning import carried_problem
from nest.public.text import apart
from nest.spec import PlanDocument
from nest.tolerances import BANDWIDTH_SHORTFALL
from nest_whatif.alternatives import Alternative
from nest_whatif.binding import Binding, binding
from nest_whatif.breakpoints import Breakpoint
from nest_whatif.outcome import decided_values, plan_label, with_summary
from nest_whatif.pools import PoolWorth
from nest_whatif.questions import Question, Questions, answers
from nest_whatif.recomputed_blocks import recomputed_blocks
from nest_whatif.shadow_prices import ShadowPrice

PARTS = ("binding", "constraints", "pools", "alternatives", "flips")  # Parts of an explanation, in order.
SOLVES_OF_A_BREAKPOINT = 3  # Solves of a breakpoint relative to other questions, for progress only.
Progress = Callable[[str, float], None]  # Called with the current question, and the share of questions answered.

Ready = Callable[[str, "Explanation"], None]
"""Called with each finished step of `nest_whatif.text.explanation.STEPS`, and the explanation so far."""


@frozen
class Explanation:
    """Explanation of a plan."""

    plan: PlanDocument  # The original plan.
    best: PlanDocument  # Best plan of its problem; the plan itself if that was searched to the end.
    parts: tuple[str, ...]  # Requested ones of `PARTS`.
    binding: tuple[Binding, ...] = ()  # Limits of the plan.
    prices: tuple[ShadowPrice, ...] = ()  # Cost of each restriction of the problem for the best plan.
    pools: tuple[PoolWorth, ...] = ()  # Worth of each pool of the cluster.
    alternatives: tuple[Alternative, ...] = ()  # For each decision of the plan, the best plan in which it differs.
    flips: tuple[Breakpoint, ...] = ()  # Values at which another plan becomes the best.
    solves: int = 0  # Number of searches.
    # Decisions of the plan, by name: one value, or one for each stage; empty for an infeasible one.
    decided: Mapping[str, tuple[str, ...]] = field(factory=dict)
    best_decided: Mapping[str, tuple[str, ...]] = field(factory=dict)  # Decisions of the best plan.

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain mappings, lists and numbers."""
        plan, best = self.plan, self.best
        return {
            "status": plan.status,
            "plan": None if plan.batch_time is None else plan_label(plan),
            "batch_time": plan.batch_time,
            "trained": plan.summary.get("trained"),
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
            "pools": [each.to_dict() for each in self.pools],
            "alternatives": [each.to_dict() for each in self.alternatives],
            "flips": [each.to_dict() for each in self.flips],
            "solves": self.solves,
            "decided": {name: list(values) for name, values in self.decided.items()},
            "best_decided": {name: list(values) for name, values in self.best_decided.items()},
        }

    def loses(self) -> dict[str, Any] | None:
        """Bandwidths whose last per cents the plan needs to stay the best, if known.

        From breakpoints first, else from its `runner_up`. `to` is that one's label; None: the winner is in the flips.
        """
        near = [each.parameter for each in self.flips if each.is_within(BANDWIDTH_SHORTFALL)]
        stated = self.plan.runner_up or {}
        if near and self.best.batch_time == self.plan.batch_time:
            to = None
        else:
            near, to = [f"bandwidth of {each['level']}" for each in stated.get("wins_if", ())], stated.get("label")
        return {"to": to, "less": BANDWIDTH_SHORTFALL, "bandwidths": near} if near else None


def parts_of(only: Iterable[str]) -> tuple[str, ...]:
    """Requested parts, in the order of `PARTS`; by default all.

    Raises:
        InputError: there is no such part.
    """
    wanted = tuple(only) or PARTS
    for name in wanted:
        if name not in PARTS:
            raise InputError(f"unknown part {name!r}; the parts are {', '.join(PARTS)}.")
    return tuple(part for part in PARTS if part in wanted)


def explanation(
    plan: PlanDocument,
    parts: Collection[str],
    solver: Solver,
    progress: Progress | None,
    ready: Ready,
    engine: Engine | None = None,
) -> Explanation:
    """Explain a plan whose numbers hold; every answer is a search of a changed problem.

    Args:
        plan: may be infeasible.
        parts: from `parts_of`.
        solver: of changed problems; it reports progress from here on.
        progress: called with the current question, and the share of questions answered.
        ready: called after each step.
        engine: answers long questions; None: this process alone.

    Raises:
        InputError: a faster plan refutes that this one is optimal.
    """
    line, known = _Progress(progress), solver.plugins
    solver.progress = line.solving
    problem = carried_problem(plan, known)
    plan = with_summary(plan, problem, known)
    if plan.status in ("optimal", "infeasible"):
        solver.know(problem, plan)
    answer = Explanation(plan, plan, tuple(parts), decided=decided_values(plan, known))
    ready("plan", answer)
    if "binding" in parts:
        told = binding(plan, known)
        answer = evolve(answer, binding=(*told[:1], *recomputed_blocks(plan, problem, known), *told[1:]))
    ready("binding", answer)
    asks_for_best = any(part in parts for part in ("constraints", "pools", "flips"))
    best = (solver.plan(problem, "the best plan", plan) if asks_for_best else None) or plan
    answer = evolve(answer, best=best, best_decided=decided_values(best, known))
    ready("best", answer)
    asked = Questions(plan, best, tuple(parts), solver.time_limit, known.installed(), solver)
    line.expect(asked.every)
    found: dict[Question, Any] = {}
    solves = solver.solves

    def take(until: str) -> tuple[Any, ...]:
        """Answers of a part; of later ones, what comes before."""
        nonlocal solves
        wanted = [each for each in asked.every if each[0] == until]
        while not found.keys() >= set(wanted):
            question, value, searches = next(coming)
            found[question] = value
            solves += searches
            line.answered(question)
        return tuple(found[each] for each in wanted)

    coming = answers(asked, engine)
    answer = evolve(answer, prices=take("constraints"))
    ready("constraints", answer)
    answer = evolve(answer, pools=take("pools"))
    ready("pools", answer)
    answer = evolve(answer, alternatives=take("alternatives"))
    ready("alternatives", answer)
    flips = take("flips")
    answer = evolve(answer, flips=flips, solves=solves)
    ready("flips", answer)
    ready("loses", answer)
    return answer


class _Progress:
    """Share of the questions answered."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._done, self._of = progress, 0, 1

    def expect(self, questions: Iterable[Question]) -> None:
        self._of = max(sum(map(_weight, questions)), 1)

    def solving(self, asking: str, _: int) -> None:
        if self._progress is not None:
            self._progress(asking, self._done / self._of)

    def answered(self, question: Question) -> None:
        self._done += _weight(question)


def _weight(question: Question) -> int:
    return SOLVES_OF_A_BREAKPOINT if question[0] == "flips" else 1
