"""Criteria of simplicity, in the order in which they decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil
from typing import Any, NamedTuple

from attrs import evolve

from nest.formulate.risk import at_most
from nest.instance import Instance, Solution, chunks_of, partial
from nest.plan.evaluate import evaluate
from nest.plan.layout import evenly_split
from nest.report.decisions import FOLLOWS
from nest.spec.constraints import parse
from nest.tolerances import AGREEMENT

LIKELY, STEP = 0.95, 0.05
"""Probability to fit beyond which plans count as equally safe, and the steps below it: the spread of the estimate,
known from a few hundred runs, resolves no smaller ones."""


class Plan(NamedTuple):
    """A plan of an instance."""

    instance: Instance
    solution: Solution


class Entry(NamedTuple):
    """A criterion."""

    name: str  # Of the criterion.
    reason: str  # Why less of it is simpler: a clause that reads on after "because".
    amount: Callable[[Plan], int]  # Of a plan.
    at_most: Callable[[Instance, int], Instance]  # The instance with only the plans of at most that amount.
    # The smaller amounts of plans, ascending.
    less: Callable[[Instance, int], Iterable[int]] = lambda _, amount: range(amount)
    # Index of the smaller amount to try first: 0, the least, if searches for less are far quicker, or -1, the most.
    next: int = -1
    # The instance with only the plans above that amount, if constraints can say that; else itself.
    more: Callable[[Instance, int], Instance] = lambda instance, _: instance

    @classmethod
    def either(
        cls, name: str, reason: str, has: Callable[[Plan], bool], without: Callable[[Instance], Instance]
    ) -> Entry:
        """Make a criterion that a plan has or has not, with the instance without such plans."""
        return cls(
            name, reason, lambda plan: int(has(plan)), lambda instance, most: instance if most else without(instance)
        )


def _of_space(instance: Instance, **changes: Any) -> Instance:
    return evolve(instance, space=evolve(instance.space, **changes))


def _constrained(instance: Instance, *texts: str) -> Instance:
    return _of_space(instance, constraints=(*instance.space.constraints, *map(parse, texts)))


def _scheduled(instance: Instance, operator: str) -> Instance:
    return _constrained(instance, f"schedule {operator} '{instance.space.usual.schedule}'")


def _mixed(plan: Plan) -> bool:
    return len({stage.candidate for stage in plan.solution.stages}) > 1


def _further_pools(plan: Plan) -> int:
    if plan.instance.pools is None:
        return 0
    return len({plan.instance.pool_of(stage.candidate) for stage in plan.solution.stages}) - 1


def _fewer_chunks(instance: Instance, further: int) -> list[int]:
    return sorted({chunks_of(schedule) - 1 for schedule in instance.space.schedules}.intersection(range(further)))


def _uneven(plan: Plan) -> bool:
    return not _mixed(plan) and bool(plan.instance.space.blocks) and not evenly_split(plan.instance, plan.solution)


def _even(instance: Instance) -> Instance:
    # Where plans may still be mixed, all of them are.
    several = instance.pools is not None and instance.space.most_pools != 1
    if not instance.space.blocks or instance.space.mixed or several:
        return instance
    return _of_space(instance, even=True)


RECOMPUTED = {"none": 0, "full": 3}  # Amount of recomputation by mode; any other mode recomputes parts of a block.
SELECTIVE, PARTIAL = 1, 2  # Amount of such a mode, and of `full` for only the first blocks.


def _recomputed(plan: Plan) -> int:
    return max(_amount(stage.recompute) for stage in plan.solution.stages)


def _amount(name: str) -> int:
    part = partial(name)
    return RECOMPUTED.get(name, SELECTIVE) if part is None else min(PARTIAL, RECOMPUTED.get(part.mode, SELECTIVE))


def _recomputing(instance: Instance, most: int) -> Instance:
    modes = dict.fromkeys(mode.name for candidate in instance.candidates for mode in candidate.recompute)
    fewer = [name for name in modes if _amount(name) <= most]
    parts = f" or recompute_layers < {len(instance.space.units)}" if most >= PARTIAL and instance.space.partial else ""
    return _constrained(instance, f"recompute in {fewer or ['none']}{parts}")


def _strategies(instance: Instance) -> list[str]:
    names = {name for candidate in instance.candidates for name in candidate.degrees}
    return sorted(names.difference(FOLLOWS))


def _degrees(plan: Plan) -> int:
    used = [plan.instance.candidates[stage.candidate].degrees for stage in plan.solution.stages]
    return sum(any(degrees.get(name, 1) > 1 for degrees in used) for name in _strategies(plan.instance))


def _fewer_degrees(instance: Instance, most: int) -> Instance:
    names = _strategies(instance)
    return _constrained(instance, f"{' + '.join(f'({name} > 1)' for name in names)} <= {most}") if names else instance


def _unusual_zero(plan: Plan) -> bool:
    usual = plan.instance.space.usual.zero
    others = any(stage.zero != usual for stage in plan.solution.stages)
    return others or plan.solution.zero_degree is not None


def _usual_zero(instance: Instance) -> Instance:
    zero = _constrained(instance, f"zero == {instance.space.usual.zero}")
    every = tuple(each for each in zero.space.zero_degrees if each is None)
    return _of_space(zero, zero_degrees=every) if every != zero.space.zero_degrees else zero


def _unusual_order(plan: Plan) -> bool:
    one = len(plan.solution.stages) == 1 or plan.solution.replicas == 1
    return not one and plan.solution.rank_order != plan.instance.space.usual.rank_order


def _usual_order(instance: Instance) -> Instance:
    return _constrained(instance, f"rank_order == '{instance.space.usual.rank_order}' or pp == 1 or replicas == 1")


def _idle(plan: Plan) -> bool:
    widths = (plan.instance.candidates[stage.candidate].width for stage in plan.solution.stages)
    return plan.solution.replicas * sum(widths) < plan.instance.size


def _unlikely(plan: Plan) -> int:
    """Return the steps by which a plan is less likely to fit than `LIKELY`."""
    if plan.instance.cluster.error is None:
        return 0
    likely = evaluate(plan.instance, plan.solution).fit_probability
    return max(0, ceil((LIKELY - likely) / STEP - AGREEMENT))


SHAPE = (
    Entry.either(
        "mixed",
        "equal stages need one set of launch flags",
        _mixed,
        lambda instance: _of_space(instance, mixed=False, most_pools=1),
    ),
    Entry(
        "pools",
        "fewer device types are easier to keep healthy",
        _further_pools,
        lambda instance, most: _of_space(instance, most_pools=most + 1),
    ),
    Entry.either(
        "pipeline",
        "without a pipeline there is no bubble and one program on all devices",
        lambda plan: len(plan.solution.stages) > 1,
        lambda instance: _constrained(instance, "pp == 1"),
    ),
    Entry(
        "schedule",
        "1F1B is the best tested schedule and every framework has it",
        lambda plan: int(plan.solution.schedule != plan.instance.space.usual.schedule),
        lambda instance, most: instance if most else _scheduled(instance, "=="),
        more=lambda instance, less: instance if less else _scheduled(instance, "!="),
    ),
    Entry(
        "chunks",
        "each chunk adds messages and activations in flight",
        lambda plan: plan.solution.chunks - 1,
        lambda instance, most: _constrained(instance, f"chunks <= {most + 1}"),
        _fewer_chunks,
        next=0,
        more=lambda instance, less: _constrained(instance, f"chunks > {less + 1}"),
    ),
)
"""Criteria before the number of stages."""

STRUCTURE = (
    *SHAPE,
    Entry(
        "stages",
        "fewer stages mean fewer messages and a smaller bubble",
        lambda plan: len(plan.solution.stages) - 1,
        lambda instance, most: _constrained(instance, f"pp <= {most + 1}"),
        more=lambda instance, less: _constrained(instance, f"pp > {less + 1}"),
    ),
    Entry.either("uneven", "frameworks split layers evenly unless told otherwise", _uneven, _even),
    Entry.either(
        "unlike",
        "most frameworks have one recompute policy and one ZeRO stage for all stages",
        lambda plan: len({(stage.recompute, stage.zero) for stage in plan.solution.stages}) > 1,
        lambda instance: _constrained(instance, "uniform(recompute)", "uniform(zero)"),
    ),
    Entry("recompute", "recomputation costs compute", _recomputed, _recomputing),
    Entry("degrees", "fewer kinds of parallelism are simpler to run", _degrees, _fewer_degrees),
)
"""Criteria of simplicity by itself."""

ORDER = (
    *STRUCTURE,
    Entry.either("zero", "the ZeRO stage of the framework's own recipes counts 0", _unusual_zero, _usual_zero),
    Entry.either("rank order", "the framework's default rank order counts 0", _unusual_order, _usual_order),
    Entry.either(
        "idle", "idle devices cost money", _idle, lambda instance: _constrained(instance, f"devices == {instance.size}")
    ),
    Entry(
        "fit",
        "a run that runs out of memory is lost",
        _unlikely,
        lambda instance, most: at_most(instance, 1 - (LIKELY - STEP * most)),
    ),
)
"""All criteria in order; then the step time, the bytes of the fullest stage, and the documented order of ties."""
