"""A small model in front of that of a case of several chunks: which content each stage has, wherever chunks begin.

Stages take no less than `nest.solve.cpsat.chunk_stages` says of their contents, and all contents are all units. Where
that has no solution within the limit, no plan has, and the model with all borders of chunks need not be built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nest.solve.cpsat.scaling import Limit, largest_slowest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ortools.sat.python.cp_model import CpModel

    from nest.solve.cpsat.chunk_stages import ChunkChoices
    from nest.solve.cpsat.contents import Contents


def content_model(contents: Contents, choices: Sequence[ChunkChoices], limit: Limit) -> CpModel:
    """The model of a case.

    Args:
        contents: what stages can hold.
        choices: what each stage can be.
        limit: on `A * max t + sum u + max y`, of which every term is rounded down.
    """
    from ortools.sat.python import cp_model

    model, (scale, most) = cp_model.CpModel(), limit
    slowest = model.new_int_var(0, largest_slowest(scale, most), "slowest")
    sync = model.new_int_var(0, most // scale.sync, "sync")
    taken = [[model.new_bool_var(f"{i}:{j}") for j in range(len(own))] for i, own in enumerate(choices)]
    weighed, added = cp_model.LinearExpr.weighted_sum, []
    for row, own in zip(taken, choices, strict=True):
        model.add_exactly_one(row)
        model.add(slowest >= weighed(row, [scale.ticks(each) for each in own.time.tolist()]))
        model.add(sync >= weighed(row, [scale.sync_ticks(each) for each in own.sync.tolist()]))
        added.append(weighed(row, [scale.sync_ticks(each) for each in own.added.tolist()]))
    for each, total in enumerate(contents.totals.tolist()):
        held = [
            weighed(row, contents.counts[own.content, each].tolist()) for row, own in zip(taken, choices, strict=True)
        ]
        model.add(sum(held) == total)
    model.add(scale.slowest * slowest + scale.sync * (sync + sum(added)) <= most)
    return model
