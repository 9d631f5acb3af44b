"""Times of the passes of each chunk, in the model of a case of several chunks (PROBLEM.md section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from nest.instance.schedule import FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS
from nest.tolerances import LIMIT_SLACK, SUM_ERROR
from nest_cpsat.replay import MESSAGES, Passes
from nest_cpsat.stages import data_parallel_groups, in_pieces, rows_of_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest_cpsat.chunk_parts import ChunkParts
    from nest_cpsat.chunk_stages import ChunkCase, ChunkChoices, Sending
    from nest_cpsat.cuts import Floats
    from nest_cpsat.placement import Term
    from nest_cpsat.scaling import Scale


STEP = 2.0**-16  # Relative growth of a buffer that separates the bytes of a collective from its latencies.

MOST_SHARES = 50_000
"""Most choices of stages, times chunks and their units, for which ZeRO communication is modelled by chunk."""


def chunk_passes(
    model: CpModel,
    numbers: ChunkCase,
    route: Sequence[int],
    chosen: Sequence[tuple[ChunkChoices, Sequence[IntVar]]],
    first: ChunkParts,
    messages: Sequence[tuple[Sending, Term]],
    waits: Sequence[Term],
    scale: Scale,
    longest: int,
) -> Passes:
    """Times of passes, with ZeRO communication unless that takes too many numbers.

    Args:
        route: stage of each chunk in pipeline order.
        chosen: by stage, its choices and their variables.
        messages: ticks of each boundary, in either direction.
        waits: ticks that each stage waits for ports.
        longest: most ticks of a stage per micro-batch; CP-SAT errs with far larger numbers.
    """
    used, units, costs = numbers.candidate, numbers.contents.layers, numbers.costs
    found = used.finding_weight_gradients
    parts = {FORWARD: used.forward, INPUT_GRADIENTS: used.backward - found, WEIGHT_GRADIENTS: found}
    extra = numbers.contents.unit_extra
    terms: dict[tuple[str, int], Term] = {(way, chunk): 0 for way in MESSAGES.values() for chunk in range(len(route))}
    for sending, ticks in messages:
        terms |= {("arriving", sending.number + 1): ticks, ("returning", sending.number): ticks}

    def over(chunk: int, values: Floats) -> Term:
        """Ticks of a chunk, from seconds by unit and number of its first blocks."""
        return first.over(chunk, [[min(scale.ticks(each), longest + 1) for each in row] for row in values.tolist()])

    for stage, (choices, taken) in enumerate(chosen):
        names = [costs.modes[row][0] for row in choices.mode.tolist()]
        own = [chunk for chunk, home in enumerate(route) if home == stage]
        for chunk in own:
            of_units = {kind: [[values[list(layers)].sum()] for layers in units] for kind, values in parts.items()}
            terms |= {(kind, chunk): over(chunk, numpy.array(values)) for kind, values in of_units.items()}
        for name in dict.fromkeys(name for name in names if extra[name].any()):
            here = model.new_bool_var(f"{stage} runs {name}")
            model.add(sum(literal for each, literal in zip(names, taken, strict=True) if each == name) == here)
            for chunk in own:
                more = model.new_int_var(0, longest, "")
                model.add(more == over(chunk, extra[name])).only_enforce_if(here)
                model.add(more == 0).only_enforce_if(~here)
                terms[INPUT_GRADIENTS, chunk] = terms[INPUT_GRADIENTS, chunk] + more

    if numbers.costs.shared.any():
        _share(model, numbers, route, chosen, first.runs, terms, scale, longest)
    return Passes(route, terms, waits, numbers.case.hiding)


def _share(
    model: CpModel,
    numbers: ChunkCase,
    route: Sequence[int],
    chosen: Sequence[tuple[ChunkChoices, Sequence[IntVar]]],
    runs: Callable[[int, int], Term],
    terms: dict[tuple[str, int], Term],
    scale: Scale,
    longest: int,
) -> None:
    """Add ZeRO communication: latencies in equal parts, the rest by the bytes of chunks."""
    units, costs, chunks = numbers.contents.layers, numbers.costs, len(route) // numbers.case.stages
    if sum(len(choices) for choices, _ in chosen) * chunks * len(units) > MOST_SHARES:
        return
    lost = SUM_ERROR * costs.shared
    for kind, of, sent, kinds in (
        ("all_gather", "weights", costs.gathered, (FORWARD, INPUT_GRADIENTS)),
        ("reduce_scatter", "gradients", costs.scattered - lost, (WEIGHT_GRADIENTS,)),
    ):
        whole, latencies, rates = _of_contents(numbers, kind, of)
        if (latencies < -LIMIT_SLACK * whole).any():
            continue  # Bytes that take more than all of the time: nothing is said of their parts.
        held = [rows_of_state(group)[of] for group in numbers.candidate.state]
        each = numpy.array([[row[list(layers)].sum() for layers in units] for row in held])
        for chunk, stage in enumerate(route):
            choices, taken = chosen[stage]
            more, none = model.new_int_var(0, longest, ""), [model.new_bool_var("")]
            for content, row, here in zip(choices.content.tolist(), choices.mode.tolist(), taken, strict=True):
                if sent[row, content] <= lost[row, content]:
                    none.append(here)
                    continue
                # A difference of nearly equal numbers, the part that grows may be off by that much.
                share = sent[row, content] / whole[content] * (1 - LIMIT_SLACK)
                ticks = [
                    min(scale.ticks(share * seconds), longest + 1) for seconds in (rates[:, content] @ each).tolist()
                ]
                total = sum((n * runs(chunk, unit) for unit, n in enumerate(ticks) if n), start=0)
                total = total + scale.ticks(share * latencies[content] / chunks)
                model.add(more == total).only_enforce_if(here)
            model.add(sum(none[1:]) == none[0])
            model.add(more == 0).only_enforce_if(none[0])
            for each_kind in kinds:
                terms[each_kind, chunk] = terms[each_kind, chunk] + more


def _of_contents(numbers: ChunkCase, kind: str, of: str) -> tuple[Floats, Floats, Floats]:
    """By content, seconds of a collective and their part independent of bytes; by group, seconds per byte."""
    groups = data_parallel_groups(numbers.instance, numbers.case, numbers.case.candidates[0])
    whole, latencies = numpy.zeros((2, len(numbers.contents.counts)))
    rates = []
    for sums, group in zip(numbers.contents.parts.state, groups, strict=True):
        seconds, longer = (
            in_pieces(numbers.instance, kind, of, sums | {of: grown * sums[of]}, group, 1)[0] for grown in (1, 1 + STEP)
        )
        growing = (longer - seconds) / STEP
        rates.append(numpy.divide(growing, sums[of], out=numpy.zeros_like(growing), where=sums[of] > 0))
        whole, latencies = whole + seconds, latencies + seconds - growing
    return whole, latencies, numpy.array(rates)
