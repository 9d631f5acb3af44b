"""Best plan of a changed problem compared with the original plan."""

from collections.abc import Mapping

from attrs import evolve, field, frozen

from nest.deployment import deployment
from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.public.changes import SHARE_NAMES, decided_instance, decisions, degrees_of, figures, grown, why
from nest.public.planning import evaluate as price
from nest.public.planning import solution_of
from nest.spec import PlanDocument, Problem
from nest.tolerances import AGREEMENT

NOT_SAID = ("stages", "devices")
"""Decisions that follow from others or say little: layers of stages, number of devices."""

EACH_STAGE = ("zero", "recompute")  # Decisions made by stage.


@frozen
class Outcome:
    """Best plan of a changed problem compared with the original plan."""

    plan: PlanDocument | None  # Best plan of the changed problem; None: there is none.
    # Share by which it is slower than the original; below 0: faster; None: nothing to compare.
    relative: float | None = None
    changes: tuple[tuple[str, str, str], ...] = ()  # Changed decisions, the most important first: name, before, now.
    reason: str | None = None  # Part of the step time that makes the difference; None: no difference, or no plan.
    refusal: str | None = None  # Why there is no plan; None: there is one.
    proved: bool = True  # No plan of the changed problem is better, or none exists; else time ran out.
    decided: Mapping[str, tuple[str, ...]] = field(factory=dict)  # Decisions of the plan (`decided_values`).
    # Growth of each part of the step time, as a share of the original's step time.
    grown: Mapping[str, float] = field(factory=dict)

    @property
    def label(self) -> str | None:
        """The plan's decisions in a few words; None: there is none."""
        return None if self.plan is None else plan_label(self.plan)

    @property
    def as_fast(self) -> bool:
        """True if the plans take the same time."""
        return self.relative is not None and abs(self.relative) <= AGREEMENT

    def to_dict(self) -> dict[str, object]:
        """Convert all but the plan itself to plain mappings, lists and numbers."""
        return {
            "plan": self.label,
            "batch_time": None if self.plan is None else self.plan.batch_time,
            "relative": self.relative,
            "changes": [{"name": name, "before": before, "now": now} for name, before, now in self.changes],
            "reason": self.reason,
            "refusal": self.refusal,
            "proved": self.proved,
            "decided": {name: list(values) for name, values in self.decided.items()},
            "grown": dict(self.grown),
        }


def outcome(plan: PlanDocument, other_plan: PlanDocument | None, known: Registry) -> Outcome:
    """Compare `other_plan`, of a changed problem, with `plan`; an infeasible one has no comparison."""
    if other_plan is None:
        return Outcome(None, refusal="The problem does not allow it.")
    if other_plan.status == "infeasible" or other_plan.batch_time is None:
        return Outcome(None, refusal=other_plan.diagnosis)
    proved = other_plan.status == "optimal"
    values = decided_values(other_plan, known)
    if plan.batch_time is None:
        return Outcome(other_plan, proved=proved, decided=values)
    relative = other_plan.batch_time / plan.batch_time - 1
    mine, other = plan.summary["time_shares"], other_plan.summary["time_shares"]
    slower = relative > 0
    reason = None if abs(relative) <= AGREEMENT else why(mine, other, plan.batch_time, slower=slower)
    differences = grown(mine, other, plan.batch_time)
    return Outcome(other_plan, relative, changes(plan, other_plan, known), reason, None, proved, values, differences)


def changes(before: PlanDocument, now: PlanDocument, known: Registry) -> tuple[tuple[str, str, str], ...]:
    """Different decisions of two plans, except for consequences of others: name, before, now."""
    old, new = decisions_as_text(before, known), decisions_as_text(now, known)
    values = [(name, old.get(name, "1"), new.get(name, "1")) for name in dict.fromkeys([*old, *new])]
    return tuple(change for change in values if change[1] != change[2])


def decisions_as_text(plan: PlanDocument, known: Registry) -> dict[str, str]:
    """Decisions of a plan by name, as text, the most important first; empty for an infeasible one."""
    if plan.status == "infeasible":
        return {}
    return {each.name: each.text for each in decisions(plan, known) if each.name not in NOT_SAID}


def decided_values(plan: PlanDocument, known: Registry) -> dict[str, tuple[str, ...]]:
    """Decisions of a plan by name: one value, or one for each stage in pipeline order; empty for an infeasible one."""
    if plan.status == "infeasible":
        return {}
    return {each.name: each.values for each in decisions(plan, known) if each.name not in NOT_SAID}


def plan_label(plan: PlanDocument) -> str:
    """The plan's degrees in a few words: `tp 8, sp 8, pp 4, replicas 4, micro-batch 1`.

    If stages differ in a degree, all its values in pipeline order: `tp 8/4`.
    """
    shape = deployment(plan)
    used = [degrees_of(plan, stage) for stage in plan.stages]
    degrees = []
    for name in dict.fromkeys(name for each in used for name in each):
        values = list(dict.fromkeys(each.get(name, 1) for each in used))
        if values != [1]:
            degrees.append(f"{name} {'/'.join(map(str, values))}")
    sharing = [] if shape.zero_degree is None else [f"shard groups of {shape.zero_degree}"]
    return ", ".join(
        [*degrees, f"pp {shape.stages}", f"replicas {shape.replicas}", *sharing, f"micro-batch {shape.micro_batch}"]
    )


PARTS_OF_THE_BATCH_TIME = set(SHARE_NAMES)


def with_summary(plan: PlanDocument, problem: Problem, known: Registry) -> PlanDocument:
    """Price `plan` again if its summary lacks figures needed for questions.

    Args:
        plan: its numbers hold (`nest.api.check`); an infeasible one has no figures.
        problem: of the plan, self-contained.

    Raises:
        InputError: the plan cannot be priced.
    """
    needed = {"memory_capacity", "idle_share", "devices", "devices_used", "time_shares", "levels"}
    if plan.batch_time is None:
        return plan
    if needed <= set(plan.summary) and set(plan.summary["time_shares"]) == PARTS_OF_THE_BATCH_TIME:
        return plan
    instance = decided_instance(problem, plan, known)
    try:
        solution = solution_of(instance, plan)
    except ValueError as error:
        raise InputError(f"the plan cannot be priced: {error}") from None
    levels = [level.name for level in instance.cluster.levels]
    figures_now = figures(instance, solution, price(instance, solution), None)
    return evolve(plan, summary={**plan.summary, "levels": levels, **figures_now})


def signature(plan: PlanDocument, known: Registry) -> dict[str, tuple[str, ...]]:
    """Common signature of plans without a breakpoint between them; empty for an infeasible one.

    Decisions by stage count as the set of values: one more stage or block that recomputes makes no other plan.
    """
    own = {name: tuple(sorted({str(getattr(stage, name)) for stage in plan.stages})) for name in EACH_STAGE}
    rests = {stage.recompute_rest for stage in plan.stages} - {None}
    own["recompute"] = tuple(sorted({*own["recompute"], *map(str, rests)}))
    return {name: own.get(name, (values,)) for name, values in decisions_as_text(plan, known).items()}
