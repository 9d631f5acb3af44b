"""Small model before the full one of a case of several chunks: contents of the stages, whatever the chunk borders.

Stages take at least the times of `nest_cpsat.chunk_stages`, and their contents cover all units. If it has no
solution within the limit, the model with chunk borders need not be built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nest_cpsat.scaling import Limit, largest_slowest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ortools.sat.python.cp_model import CpModel

    from nest_cpsat.chunk_stages import ChunkChoices
    from nest_cpsat.contents import Contents


def content_model(contents: Contents, choices: Sequence[ChunkChoices], limit: Limit) -> CpModel:
    """Model of a case; `limit` is on `A * max t + sum u + max y`, with every term rounded down."""
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
