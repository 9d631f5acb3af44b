"""The rank table: which rank is which accelerator of which host, for people and for scripts."""

import csv
import io
import json
from collections.abc import Mapping

from nest.deployment import deployment
from nest.hooks.placements import Placed, placement, rank_order
from nest.spec import PlanDocument

COLUMNS = ("rank", "node", "gpu", "pp", "dp", "cp", "tp", "ep", "etp")
"""Of both files, in this order."""


class RanksExporter:
    """Writes the rank table as CSV and as JSON."""

    name = "ranks"
    summary = "the rank table: rank, node, gpu and coordinates of every process (CSV and JSON)"

    def export(self, plan: PlanDocument) -> Mapping[str, str]:
        """`ranks.csv` and `ranks.json`.

        Raises:
            InputError: the plan is infeasible, its ranks have no common grid, or hosts do not hold the devices.
        """
        ranks = placement(plan)
        return {"ranks.csv": _csv(ranks), "ranks.json": _json(plan, ranks)}


def _csv(ranks: tuple[Placed, ...]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(_row(each).values() for each in ranks)
    return text.getvalue()


def _json(plan: PlanDocument, ranks: tuple[Placed, ...]) -> str:
    """The same with the sizes of the groups, one rank a line."""
    shape = deployment(plan)
    sizes = {"pp": shape.stages, "dp": shape.data_parallel, "cp": shape.cp, "tp": shape.tp, "ep": shape.ep}
    head = {"world_size": shape.world_size, "order": "-".join(rank_order(plan)), "sizes": {**sizes, "etp": shape.etp}}
    rows = ",\n".join(f"    {json.dumps(_row(each), ensure_ascii=False)}" for each in ranks)
    return f'{json.dumps(head, indent=2)[:-2]},\n  "ranks": [\n{rows}\n  ]\n}}\n'


def _row(placed: Placed) -> dict[str, int | str]:
    return {name: getattr(placed, name) if name in ("node", "gpu") else getattr(placed.rank, name) for name in COLUMNS}
