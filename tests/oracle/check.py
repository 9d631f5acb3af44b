"""Recompute every number of a plan document (FORMATS.md, "Plan") of a profile problem."""

from math import isclose

from tests.oracle import pools
from tests.oracle import price as alone
from tests.oracle.parts import Recompute
from tests.oracle.price import widest_of

TOLERANCE = 1e-9


def same(found: float | None, expected: float | None, tolerance: float = TOLERANCE) -> bool:
    """Whether both are None, or numbers that agree."""
    if found is None or expected is None:
        return found is expected
    return isclose(found, expected, rel_tol=tolerance)


def recompute_of(stage: dict) -> Recompute:
    """What a stage of a document recomputes."""
    if stage.get("recompute_layers") is None:
        return stage["recompute"]
    return stage["recompute"], stage["recompute_layers"], stage["recompute_rest"]


def plan_of(document: dict) -> dict:
    """The decisions of a plan document, in the oracle's own form."""
    problem = document["problem"]
    index = {name: i for i, name in enumerate(problem["profile"]["layers"])}
    spread = 1 if document["rank_order"] == "pp-inner" else document["data_parallel"]
    return {
        "replicas": document["data_parallel"],
        "rank_order": document["rank_order"],
        "schedule": document["schedule"],
        "chunks": document.get("chunks", 1),
        "zero_degree": document.get("zero_degree"),
        "stages": [
            {
                "layers": [index[name] for name in stage["layers"]],
                "candidate": stage["candidate"],
                "offset": stage["devices"][0] // spread,
                "recompute": recompute_of(stage),
                "zero": stage["zero"],
                "chunks": [[index[name] for name in chunk] for chunk in stage.get("chunks") or ()] or None,
            }
            for stage in document["stages"]
        ],
    }


def differences(place: str, found: dict, expected: dict) -> list[str]:
    """The keys of `expected` whose value in `found` is another."""
    wrong = []
    for key, value in expected.items():
        got = found[key]
        if isinstance(value, float):
            agrees = same(got, value)
        else:
            agrees = (list(got) if isinstance(value, list) else got) == value
        if not agrees:
            wrong.append(f"{place}{key} is {got!r}, the oracle says {value!r}")
    return wrong


def check_infeasible(document: dict) -> list[str]:
    absent = dict.fromkeys(("batch_time", "lower_bound", "throughput", "candidate"))
    return differences("", document, absent | {"fits": False, "stages": []})


def check_document(document: dict, *, searched: bool = True) -> list[str]:
    """Every disagreement with a plan document; rules and memory may be broken unless it was `searched`."""
    if document["status"] == "infeasible":
        return check_infeasible(document)
    problem = document["problem"]
    plan = plan_of(document)
    price, violations = (pools.price, pools.violations) if pools.has_pools(problem) else (alone.price, alone.violations)
    numbers = price(problem, plan)
    candidate = widest_of(problem, plan)
    summary = {key: candidate[key] for key in ("name", "degrees", "width", "samples")}
    total = numbers["batch_time"]
    expected = {
        "nest": 1,
        "batch_time": total,
        "throughput": problem["training"]["global_batch"] / total if total > 0 else None,
        "fits": numbers["fits"],
        "micro_batches": numbers["micro_batches"],
    }
    wrong = differences("", document, expected) + differences("candidate.", document["candidate"], summary)
    for i, (stage, stage_numbers) in enumerate(zip(document["stages"], numbers["stages"], strict=True)):
        wrong += differences(f"stages[{i}].", stage, stage_numbers)
    if searched:
        if document["status"] == "optimal":
            wrong += differences("", document, {"lower_bound": total})
        if not numbers["fits"]:
            wrong.append("a stage exceeds the memory")
        wrong += [f"the plan breaks a rule: {rule}" for rule in violations(problem, plan)]
    return wrong
