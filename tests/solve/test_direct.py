"""Tensors sent straight to their readers: priced, checked, solved and verified as an exhaustive search has it."""

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

import nest
from nest.errors import InputError
from nest.formulate.problem import formulated
from nest.hooks.registry import registry
from nest.plan.evaluate import evaluate
from nest.solve.solver import solve_on_levels as solve
from nest.tolerances import PROOF
from tests.agreement.compare import as_json
from tests.measured import profile
from tests.oracle.check import check_document
from tests.oracle.enumerate_plans import best_time
from tests.seeds import seeds

KNOWN = registry()

MOST_PLANS = 60_000
"""Plans of a problem that are tried one by one."""


def problem(seed: int) -> dict[str, Any]:
    """Few layers with many skips, on levels of which inner ones need not be faster."""
    random = Random(seed)
    count = random.randint(3, 4)

    def row(most: float) -> list[float]:
        return [round(random.uniform(0, most), 2) for _ in range(count)]

    pairs = [(one, other) for one in range(count) for other in range(one + 1, count)]
    edges = [pair for pair in pairs if random.random() < 0.75] or pairs[:1]
    candidates = [
        {
            "name": f"c{width}",
            "degrees": {},
            "width": width,
            "samples": 1,
            "forward": row(2.0 / width),
            "backward": row(4.0 / width),
            "state": {
                "dense": {
                    "ranks": [0],
                    **{name: row(3) for name in ("weights", "gradients", "optimizer")},
                    "update": row(0.5),
                }
            },
            "recompute": {
                "none": {
                    "extra": [0.0] * count,
                    "first": row(5),
                    "more": row(5),
                    "peak": row(1),
                    "stash_inputs": False,
                },
                "full": {"extra": row(1), "first": row(1), "more": row(1), "peak": row(1), "stash_inputs": True},
            },
            "edge_bytes": [round(random.choice([0, 1, 3]) * random.uniform(0.1, 3), 2) for _ in edges],
        }
        for width in ((1, 2) if seed % 3 == 0 else (1,))
    ]
    levels = [
        {"fanout": 2, "bandwidth": random.choice([4.0, 1.0]), "latency": random.choice([0, 0.2])},
        {"fanout": 2, "bandwidth": random.choice([2.0, 8.0]), "latency": random.choice([0.1, 0.5])},
    ]
    return {
        "nest": 1,
        "training": {"global_batch": random.choice([2, 4]), "schedule": random.choice(["1f1b", "gpipe", "nest"])},
        "cluster": {"memory": random.choice([1e6, 40.0, 25.0]), "levels": levels},
        "search": {
            "tensors": "direct",
            "zero": [random.choice([0, 1])],
            "rank_order": ["pp-inner"],
            "mixed": seed % 3 == 0,
        },
        "profile": {
            "layers": [f"l{layer}" for layer in range(count)],
            "edges": [list(e) for e in edges],
            "candidates": candidates,
        },
    }


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(3, 150))
def test_the_plan_is_the_best_of_all(seed: int) -> None:
    drawn = problem(seed)
    try:
        best = best_time(drawn, MOST_PLANS)
    except OverflowError:
        pytest.skip("too many plans to try")
    plan = nest.solve(drawn)
    if best is None:
        assert plan.status == "infeasible"
        return
    assert plan.batch_time is not None
    assert plan.batch_time == pytest.approx(best, rel=2 * PROOF)
    assert plan.batch_time >= best * (1 - 1e-9)
    # A reduction is only bounded from below while CP-SAT looks, so that a gap may stay open.
    assert plan.lower_bound <= best * (1 + 1e-9)
    assert nest.check(plan).ok
    document = as_json(plan.to_dict())
    assert check_document({**document, "lower_bound": document["batch_time"]}) == []


def chain(count: int, tensors: str) -> dict[str, Any]:
    drawn = problem(1)
    drawn["search"]["tensors"] = tensors
    drawn["profile"]["edges"] = [list(each) for each in pairwise(range(len(drawn["profile"]["layers"])))]
    for candidate in drawn["profile"]["candidates"]:
        candidate["edge_bytes"] = [1.0] * len(drawn["profile"]["edges"])
    return drawn


def test_a_chain_has_nothing_to_relay() -> None:
    direct, relayed = (nest.solve(chain(4, tensors)) for tensors in ("direct", "relayed"))
    assert direct.batch_time == pytest.approx(relayed.batch_time, rel=2 * PROOF)


def three_stages(tensors: str, levels: list[dict[str, Any]]) -> list[float]:
    """Times of `a`, `b` and `c`, of two seconds each, where `a` sends five bytes to `c` and one of them to `b`."""
    measured = profile([1.0] * 3, [1.0] * 3, edges=[(0, 1), (1, 2), (0, 2)], edge_bytes=[1.0, 1.0, 5.0])
    plan = nest.evaluate(
        {
            "nest": 1,
            "training": {"global_batch": 4},
            "cluster": {"memory": 1e6, "levels": levels},
            "search": {"tensors": tensors},
            "fixed": {"stages": [["a"], ["b"], ["c"]], "zero": 0, "recompute": "none", "replicas": 1},
            "profile": {**measured, "layers": ["a", "b", "c"]},
        }
    )
    assert nest.check(plan).ok
    return [stage.time for stage in plan.stages]


def test_a_stage_between_does_not_pay_for_what_it_does_not_read() -> None:
    levels = [{"fanout": 3, "bandwidth": 1.0, "latency": 0.0}]
    assert three_stages("relayed", levels) == pytest.approx([2 + 5, 2 + 5 + 6, 2 + 6])
    assert three_stages("direct", levels) == pytest.approx([2 + 5, 2 + 1 + 1, 2 + 6])


def test_what_is_sent_directly_goes_over_the_level_of_both_ends() -> None:
    levels = [{"fanout": 2, "bandwidth": 2.0, "latency": 0.1}, {"fanout": 2, "bandwidth": 0.5, "latency": 0.3}]
    inner, outer = (lambda size: 0.1 + size / 2), (lambda size: 0.3 + size / 0.5)
    # `b` lies beside `a`, `c` beyond. Of the tensor of `a`, one byte is read by both, so that its gradient comes from
    # the farther one, and four by `c` alone.
    times = three_stages("direct", levels)
    assert times == pytest.approx([2 + outer(5), 2 + inner(1) + outer(1), 2 + outer(6)])


def test_verify_proves_it() -> None:
    drawn = problem(2)
    plan = nest.solve(drawn, verify=True)
    assert plan.verification is not None
    assert plan.verification["status"] in ("proved", "open")
    assert plan.verification["better_batch_time"] is None


@pytest.mark.parametrize(("name", "load"), [("bert24", 17.7899), ("gnmt", 32.9107)])
def test_published_optima_come_out(shared: Path, name: str, load: float) -> None:
    instance = formulated(
        shared / "dag" / f"layergraphs__{name}_inference.json", KNOWN, changes={"search": {"tensors": "direct"}}
    )[1]
    result = solve(instance)
    assert result.status == "optimal"
    assert result.solution is not None
    assert evaluate(instance, result.solution).slowest == pytest.approx(load, abs=5e-5)


def test_what_cannot_send_directly_is_refused() -> None:
    drawn = problem(1)
    drawn["training"]["schedule"] = "interleaved"
    with pytest.raises(InputError, match="one chunk"):
        nest.solve(drawn)
