"""The oracle against the optima of an independent brute force."""

import json

from tests.oracle.brute_force import solve
from tests.oracle.check import same
from tests.oracle.price import price, violations


def test_the_oracle_finds_every_published_optimum(shared):
    lines = (shared / "small" / "optima.jsonl").read_text().splitlines()
    assert len(lines) >= 48
    for line in lines:
        record = json.loads(line)
        answer = solve(record["problem"])
        assert same(answer.batch_time, record["batch_time"]), record["seed"]


def test_the_oracle_prices_the_published_plans_alike(shared):
    for line in (shared / "small" / "optima.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["plan"] is None:
            continue
        problem, plan = record["problem"], explicit(record)
        numbers = price(problem, plan)
        assert numbers["fits"], record["seed"]
        assert same(numbers["batch_time"], record["batch_time"]), record["seed"]
        assert violations(problem, plan) == [], record["seed"]


def explicit(record: dict) -> dict:
    """A published plan in the oracle's form."""
    plan = record["plan"]
    rows = zip(plan["stages"], plan["offs"], plan["recs"], plan["zero"], strict=True)
    return {
        "replicas": plan["d"],
        "rank_order": plan["order"],
        "schedule": record["problem"]["training"]["schedule"],
        "stages": [
            {"layers": layers, "candidate": plan["candidate"], "offset": offset, "recompute": recompute, "zero": zero}
            for layers, offset, recompute, zero in rows
        ],
    }
