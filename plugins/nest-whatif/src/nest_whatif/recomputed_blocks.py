"""Cost and memory of one recomputed block more or less."""

from typing import Any

from attrs import evolve

from nest.hooks.registry import Registry
from nest.instance import Instance, Partial, Solution, partial
from nest.public.changes import decided_instance, runs_of_stages, structure_violations
from nest.public.planning import evaluate as price
from nest.public.planning import solution_of
from nest.spec import PlanDocument, Problem
from nest_whatif.binding import Binding

STEPS = {"more": 1, "fewer": -1}  # Change of recomputed blocks in stages, by name of the figures.


def recomputed_blocks(plan: PlanDocument, problem: Problem, known: Registry) -> tuple[Binding, ...]:
    """The `recomputation` of a feasible plan: blocks by stage, and the effect of one block more and fewer.

    The rest of the plan stays. Empty if the problem has no partial recomputation.

    Args:
        plan: its numbers hold.
        problem: of the plan, self-contained.

    Raises:
        InputError: the problem cannot be used.
    """
    if plan.batch_time is None:
        return ()
    instance = decided_instance(problem, plan, known)
    solution = solution_of(instance, plan)
    figures = {name: found for name, by in STEPS.items() if (found := _figures(instance, solution, by))}
    names = list(dict.fromkeys(stage.recompute for stage in solution.stages))
    return (Binding("recomputation", {"recompute": names, "chunks": solution.chunks, **figures}),) if figures else ()


def _figures(instance: Instance, solution: Solution, by: int) -> dict[str, Any] | None:
    """Effect of `by` more blocks in each stage that can have them: relative time, bytes, and whether that fits."""
    changed = _changed(instance, solution, by)
    if changed == solution or structure_violations(instance, changed):
        return None
    before, after = price(instance, solution), price(instance, changed)
    return {
        "recompute": list(dict.fromkeys(stage.recompute for stage in changed.stages)),
        "slower_by": after.batch_time / before.batch_time - 1,
        "memory": max(stage.memory for stage in after.stages) - max(stage.memory for stage in before.stages),
        "fits": after.admitted,
    }


def _changed(instance: Instance, solution: Solution, by: int) -> Solution:
    units = [frozenset(unit) for unit in instance.space.units]
    runs = runs_of_stages(instance, solution)
    held = [max(sum(not unit.isdisjoint(run) for unit in units) for run in chunks) for chunks in runs]
    if any(each.uniform == "recompute" for each in instance.space.constraints):
        held = [max(held)] * len(held)
    stages = (
        evolve(stage, recompute=_name(instance, stage.recompute, blocks, by))
        for stage, blocks in zip(solution.stages, held, strict=True)
    )
    return evolve(solution, stages=tuple(stages))


def _name(instance: Instance, name: str, blocks: int, by: int) -> str:
    """Recompute mode `name` of stages with so many blocks, with `by` more of them; the same if there are none."""
    part = partial(name)
    if part is None:
        # Of a block all is recomputed or nothing, where that is possible: so frameworks do it.
        parts = [each for each in map(partial, instance.space.partial) if each is not None]
        parts = [each for each in parts if each.rest == name][-1:] if by > 0 else [e for e in parts if e.mode == name]
        if not parts:
            return name
        part = parts[0]._replace(layers=0 if by > 0 else blocks)
    count = min(part.layers, blocks) + by
    return part.rest if count < 1 else part.mode if count >= blocks else Partial(part.mode, count, part.rest).name
