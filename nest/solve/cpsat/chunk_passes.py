"""What the passes of each chunk take, in the model of a case of several chunks (PROBLEM.md section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nest.instance.schedule import FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS
from nest.solve.cpsat.replay import MESSAGES, Passes
from nest.solve.cpsat.scaling import LONGEST
from nest.tolerances import SUM_ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest.solve.cpsat.chunk_stages import ChunkCase, ChunkChoices, Sending
    from nest.solve.cpsat.cuts import Floats
    from nest.solve.cpsat.placement import Term
    from nest.solve.cpsat.scaling import Scale


def chunk_passes(
    model: CpModel,
    numbers: ChunkCase,
    route: Sequence[int],
    chosen: Sequence[tuple[ChunkChoices, Sequence[IntVar]]],
    runs: Callable[[int, int], Term],
    messages: Sequence[tuple[Sending, Term]],
    waits: Sequence[Term],
    scale: Scale,
) -> Passes:
    """What passes take; which chunk of a stage gathers or scatters how much is not asked.

    Args:
        model: is added to.
        numbers: of the case.
        route: the stage of each chunk in pipeline order.
        chosen: for each stage what it can be, and whether it is.
        runs: whether a chunk holds a unit.
        messages: what is sent over a boundary, and in how many ticks, either way.
        waits: by stage, ticks that it waits for ports.
        scale: of the case.
    """
    used, units, costs = numbers.candidate, numbers.contents.layers, numbers.costs
    found = used.finding_weight_gradients
    parts = {FORWARD: used.forward, INPUT_GRADIENTS: used.backward - found, WEIGHT_GRADIENTS: found}
    extra = {mode.name: mode.extra for mode in used.recompute}
    terms: dict[tuple[str, int], Term] = {(way, chunk): 0 for way in MESSAGES.values() for chunk in range(len(route))}
    for sending, ticks in messages:
        terms |= {("arriving", sending.number + 1): ticks, ("returning", sending.number): ticks}

    def over(chunk: int, values: Floats) -> Term:
        ticks = [scale.ticks(float(values[list(layers)].sum())) for layers in units]
        return sum((each * runs(chunk, unit) for unit, each in enumerate(ticks) if each), start=0)

    for stage, (choices, taken) in enumerate(chosen):
        names = [costs.modes[row][0] for row in choices.mode.tolist()]
        own = [chunk for chunk, home in enumerate(route) if home == stage]
        for chunk in own:
            terms |= {(kind, chunk): over(chunk, values) for kind, values in parts.items()}
        for name in dict.fromkeys(name for name in names if extra[name].any()):
            here = model.new_bool_var(f"{stage} runs {name}")
            model.add(sum(literal for each, literal in zip(names, taken, strict=True) if each == name) == here)
            for chunk in own:
                more = model.new_int_var(0, LONGEST, "")
                model.add(more == over(chunk, extra[name])).only_enforce_if(here)
                model.add(more == 0).only_enforce_if(~here)
                terms[INPUT_GRADIENTS, chunk] = terms[INPUT_GRADIENTS, chunk] + more

    def sent(seconds: Floats) -> list[Term]:
        from ortools.sat.python.cp_model import LinearExpr

        each = [seconds[choices.mode, choices.content].tolist() for choices, _ in chosen]
        rows = zip(chosen, each, strict=True)
        return [LinearExpr.weighted_sum(taken, [scale.ticks(s) for s in own]) for (_, taken), own in rows]

    # What a difference may have lost is taken off.
    scattered = sent(costs.scattered - SUM_ERROR * costs.shared)
    return Passes(route, terms, sent(costs.gathered), scattered, waits, numbers.case.hiding)
