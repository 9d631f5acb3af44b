"""The best plan of a changed problem beside the plan asked about."""

from collections.abc import Mapping

from attrs import evolve, field, frozen

from nest.deployment import deployment
from nest.deployment.limits import degrees_of
from nest.errors import InputError
from nest.formulate.decisions import decisions
from nest.formulate.fixed_plan import decided_instance
from nest.hooks.registry import Registry
from nest.plan.document import solution_of
from nest.plan.evaluate import evaluate as price
from nest.report.other_plans import grown, why
from nest.report.plan_summary import SHARE_NAMES, figures
from nest.spec import PlanDocument, Problem
from nest.tolerances import AGREEMENT

NOT_SAID = ("stages", "devices")
"""Decisions that follow from others or say little: how layers are divided over stages, how many devices take part."""

EACH_STAGE = ("zero", "recompute")
"""Decisions that each stage takes for itself."""


@frozen
class Outcome:
    """The best plan of a changed problem beside the plan asked about.

    Attributes:
        plan: the best plan of the changed problem; None: there is none.
        relative: by how much it takes longer than the plan asked about, as a share of that; below 0: it is faster;
            None: there is no plan to compare.
        changes: what it decides otherwise, the most important first: name, before, now.
        reason: which part of the step time makes the difference; None: there is none, or no plan.
        refusal: why there is no plan; None: there is one.
        proved: whether no plan of the changed problem is better, or none was found in the time there was.
        decided: what the plan decides (`decided_values`); nothing where there is none.
        grown: by how much each part of the step time is longer, as a share of the step time of the plan asked about;
            nothing where there is nothing to compare.
    """

    plan: PlanDocument | None
    relative: float | None = None
    changes: tuple[tuple[str, str, str], ...] = ()
    reason: str | None = None
    refusal: str | None = None
    proved: bool = True
    decided: Mapping[str, tuple[str, ...]] = field(factory=dict)
    grown: Mapping[str, float] = field(factory=dict)

    @property
    def label(self) -> str | None:
        """What the plan decides in a few words; None where there is none."""
        return None if self.plan is None else plan_label(self.plan)

    @property
    def as_fast(self) -> bool:
        """Whether the plans take the same time."""
        return self.relative is not None and abs(self.relative) <= AGREEMENT

    def to_dict(self) -> dict[str, object]:
        """All but the plan itself in plain mappings, lists and numbers."""
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
    """`other_plan`, of a changed problem, beside `plan`; to an infeasible one nothing compares."""
    if other_plan is None:
        return Outcome(None, refusal="No list of choices that the problem gives allows it.")
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
    """What two plans decide differently, but for what follows from the rest: name, before, now."""
    old, new = decisions_as_text(before, known), decisions_as_text(now, known)
    values = [(name, old.get(name, "1"), new.get(name, "1")) for name in dict.fromkeys([*old, *new])]
    return tuple(change for change in values if change[1] != change[2])


def decisions_as_text(plan: PlanDocument, known: Registry) -> dict[str, str]:
    """What a plan decides by name, as people are told it, the most important first; nothing of an infeasible one."""
    if plan.status == "infeasible":
        return {}
    return {each.name: each.text for each in decisions(plan, known) if each.name not in NOT_SAID}


def decided_values(plan: PlanDocument, known: Registry) -> dict[str, tuple[str, ...]]:
    """What a plan decides by name: one value, or one for each stage in pipeline order; nothing of an infeasible one."""
    if plan.status == "infeasible":
        return {}
    return {each.name: each.values for each in decisions(plan, known) if each.name not in NOT_SAID}


def plan_label(plan: PlanDocument) -> str:
    """The plan's degrees in a few words: `tp 8, sp 8, pp 4, replicas 4, micro-batch 1`.

    Where stages differ in a degree, all its values in pipeline order: `tp 8/4`.
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
        [
            *degrees,
            f"pp {shape.stages}",
            f"replicas {shape.replicas}",
            *sharing,
            f"micro-batch {shape.micro_batch}",
        ]
    )


PARTS_OF_THE_BATCH_TIME = set(SHARE_NAMES)


def with_summary(plan: PlanDocument, problem: Problem, known: Registry) -> PlanDocument:
    """`plan`, priced anew where its summary lacks what questions about it are answered from.

    Args:
        plan: its numbers hold (`nest.api.check`); an infeasible one has no figures.
        problem: of the plan, self-contained.
        known: registered strategies and the like.

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
    """What plans have in common between which there is no breakpoint; nothing of an infeasible one.

    Of what stages decide for themselves it is which values there are, not which stage has which: one stage or block
    more or less that recomputes is no other plan.
    """
    own = {name: tuple(sorted({str(getattr(stage, name)) for stage in plan.stages})) for name in EACH_STAGE}
    rests = {stage.recompute_rest for stage in plan.stages} - {None}
    own["recompute"] = tuple(sorted({*own["recompute"], *map(str, rests)}))
    return {name: own.get(name, (values,)) for name, values in decisions_as_text(plan, known).items()}
