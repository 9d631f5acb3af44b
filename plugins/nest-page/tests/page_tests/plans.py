"""Plans that pages are made of in tests, solved or decided quickly."""

from functools import cache
from typing import Any

import nest
from nest import api
from nest.spec import PlanDocument
from nest_page.page_of_plan import PARTS

TRANSFORMER = {"layers": 8, "hidden": 4096, "ffn": 16384, "heads": 32, "vocab": 32000}
LEVELS = [
    {"name": "node", "fanout": 8, "bandwidth": "450 GB/s", "latency": "3 us"},
    {"name": "rack", "fanout": 2, "bandwidth": "50 GB/s", "latency": "6 us"},
]


def problem(**changes: Any) -> dict[str, Any]:
    """A small transformer on two nodes of eight devices, with keys of the problem changed."""
    written: dict[str, Any] = {
        "nest": 1,
        "model": {"transformer": dict(TRANSFORMER)},
        "training": {"global_batch": 32, "sequence_length": 2048},
        "cluster": {"device": "h100-sxm", "levels": [dict(level) for level in LEVELS]},
    }
    return {**written, **changes}


def quick(plan: PlanDocument | str) -> str:
    """The page of a plan without the parts that take searches."""
    return nest.report_page(plan, without=PARTS)


@cache
def solved() -> PlanDocument:
    """The best plan of `problem`."""
    return api.solve(problem())


@cache
def decided(**fix: Any) -> PlanDocument:
    """A plan of `problem` as it is decided."""
    return api.evaluate(problem(), fix={"tp": 2, "pp": 4, "dp": 2, "zero": 2, "recompute": "full", **fix})


@cache
def infeasible() -> PlanDocument:
    """What is said where nothing fits."""
    tiny = {"device": "h100-sxm", "levels": LEVELS, "memory": "1 MiB"}
    return api.solve(problem(cluster=tiny, strategies={"tp": [2], "cp": [1]}))
