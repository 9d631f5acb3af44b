"""The rank table: which rank is which accelerator of which host, as CSV and as JSON."""

import csv
import io
import json
from collections.abc import Mapping

from nest.deployment import deployment
from nest.deployment.ranks import grid
from nest.hooks.placements import Placed, placement, rank_order
from nest.spec import PlanDocument

COLUMNS = ("rank", "node", "gpu", "pp", "dp", "cp", "tp", "ep", "etp")
"""Of both files, in this order."""


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`ranks.csv` and `ranks.json`.

    Raises:
        InputError: the plan is infeasible, its ranks have no common grid, or hosts do not hold the devices.
    """
    ranks = placement(plan)
    text = io.StringIO()
    table = csv.DictWriter(text, _row(ranks[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(map(_row, ranks))
    return {"ranks.csv": text.getvalue(), "ranks.json": _json(plan, ranks)}


def _json(plan: PlanDocument, ranks: tuple[Placed, ...]) -> str:
    """The same with the sizes of the groups, one rank a line."""
    shape, order = deployment(plan), rank_order(plan)
    sizes = {"ep": shape.ep, "etp": shape.etp} | grid(shape, order)
    columns = [name for name in _row(ranks[0]) if name in sizes]
    head = {"world_size": shape.world_size, "order": "-".join(order), "sizes": {name: sizes[name] for name in columns}}
    rows = ",\n".join(f"    {json.dumps(_row(each), ensure_ascii=False)}" for each in ranks)
    return f'{json.dumps(head, indent=2)[:-2]},\n  "ranks": [\n{rows}\n  ]\n}}\n'


def _row(placed: Placed) -> dict[str, int | str]:
    common = {name: getattr(placed if name in ("node", "gpu") else placed.rank, name) for name in COLUMNS}
    return common | dict(placed.rank.places)
