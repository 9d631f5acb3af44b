"""A plan as the document FORMATS.md asks for, as the oracle would write it."""

from tests.oracle.parts import Recompute
from tests.oracle.price import price, widest_of

CANDIDATE = ("name", "degrees", "width", "samples", "micro_batch")


def recompute_record(recompute: Recompute) -> dict:
    """What the document says of a stage's recompute mode."""
    if isinstance(recompute, str):
        return {"recompute": recompute}
    return dict(zip(("recompute", "recompute_layers", "recompute_rest"), recompute, strict=True))


def document_of(problem: dict, plan: dict) -> dict:
    """The plan document of a plan."""
    numbers = price(problem, plan)
    names = problem["profile"]["layers"]
    candidate = widest_of(problem, plan)
    total = numbers["batch_time"]
    return {
        "nest": 1,
        "status": "optimal",
        "batch_time": total,
        "lower_bound": total,
        "throughput": problem["training"]["global_batch"] / total if total else None,
        "fits": numbers["fits"],
        "candidate": {key: candidate[key] for key in CANDIDATE if key in candidate},
        "data_parallel": plan["replicas"],
        "rank_order": plan["rank_order"],
        "schedule": plan["schedule"],
        "chunks": plan.get("chunks", 1),
        "zero_degree": plan.get("zero_degree"),
        "micro_batches": numbers["micro_batches"],
        "stages": [
            {
                **decided,
                **priced,
                **recompute_record(decided["recompute"]),
                "layers": [names[i] for i in decided["layers"]],
                "chunks": [[names[i] for i in chunk] for chunk in decided["chunks"]] if decided.get("chunks") else None,
            }
            for decided, priced in zip(plan["stages"], numbers["stages"], strict=True)
        ],
        "problem": problem,
    }
