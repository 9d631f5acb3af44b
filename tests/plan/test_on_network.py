"""Plans placed on a network, priced by hand (PROBLEM.md section 1, "Arbitrary network")."""

from typing import Any

import pytest

import nest
from tests.measured import profile

LAYERS = 4
LATENCY = 0.5


def problem(edges: list[tuple[str, str, float]], ranks: int = 1, **further: Any) -> dict[str, Any]:
    """Four layers of 3 s that send 6 bytes, with 8 bytes of weights and of gradients each, on named devices."""
    state = dict.fromkeys(("weights", "gradients"), [8.0] * LAYERS)
    names = sorted({end for one, two, _ in edges for end in (one, two)})
    topology = {
        "nodes": [{"id": name, "kind": "switch" if name.startswith("s") else "device"} for name in names],
        "edges": [
            {"source": one, "target": two, "bandwidth": bandwidth, "latency": LATENCY} for one, two, bandwidth in edges
        ],
    }
    return {
        "nest": 1,
        "profile": profile([1.0] * LAYERS, [2.0] * LAYERS, state=state, sent=6.0, width=ranks),
        "training": {"global_batch": 8, "exposed": 1.0},
        "cluster": {"memory": 1e6, "topology": topology},
        **further,
    }


def placed(written: dict[str, Any], stages: list[int], replicas: list[list[list[str]]], zero: int) -> Any:
    """The plan with these layers a stage on these devices, as `nest check` finds that it must be written."""
    fixed = {"pp": len(stages), "replicas": len(replicas), "zero": zero, "stages": stages, "recompute": "none"}
    plan = nest.evaluate({**written, "fixed": fixed}).to_dict()
    return {**plan, "placement": {"replicas": replicas}}


def batch_time(document: dict[str, Any]) -> float:
    """The step time that `nest check` finds in place of the one written."""
    from nest.documents.document import carried_problem
    from nest.formulate.fixed_plan import decided_instance
    from nest.hooks.registry import registry
    from nest.io import structure
    from nest.plan.document import solution_of
    from nest.plan.evaluate import evaluate
    from nest.spec import PlanDocument

    plan = structure(document, PlanDocument)
    instance = decided_instance(carried_problem(plan, registry()), plan, registry())
    return evaluate(instance, solution_of(instance, plan)).batch_time


LINE = [("a", "b", 4.0), ("b", "c", 2.0), ("c", "d", 4.0)]


def test_a_message_takes_its_latencies_and_its_narrowest_link() -> None:
    plan = placed(problem(LINE), [2, 2], [[["a"], ["c"]]], zero=0)
    message = 2 * LATENCY + 6 / 2  # Over b, which forwards it.
    times = [6 + message, 6 + message]
    assert batch_time(plan) == pytest.approx(7 * max(times) + sum(times))


def test_a_ring_is_as_slow_as_its_slowest_path() -> None:
    star = [("a", "s", 4.0), ("b", "s", 4.0), ("c", "s", 1.0), ("d", "s", 2.0)]
    plan = placed(problem(star), [4], [[["a"]], [["b"]], [["c"]], [["d"]]], zero=0)
    # 32 bytes of gradients over four members, each path of two links; c's is the narrowest.
    all_reduce = 2 * (3 * (2 * LATENCY) + 3 / 4 * 32 / 1)
    assert batch_time(plan) == pytest.approx(1 * 12 + 1 * 12 + all_reduce)


def test_the_order_of_a_ring_is_the_fastest() -> None:
    square = [("a", "b", 4.0), ("b", "c", 4.0), ("c", "d", 4.0), ("d", "a", 4.0), ("a", "c", 0.5)]
    plan = placed(problem(square), [4], [[["a"]], [["c"]], [["b"]], [["d"]]], zero=0)
    # Round the square, never over the slow diagonal, whatever the order of the replicas.
    all_reduce = 2 * (3 * LATENCY + 3 / 4 * 32 / 4)
    assert batch_time(plan) == pytest.approx(12 + 12 + all_reduce)


def test_links_carry_what_all_stages_send_over_them() -> None:
    # Both replicas send from one side to the other, over the one link between b and c.
    plan = placed(problem(LINE), [2, 2], [[["a"], ["d"]], [["b"], ["c"]]], zero=0)
    message = 3 * LATENCY + 6 / 2
    crossing = 2 * 6 / 2  # Activations of two replicas one way; gradients go the other way.
    assert crossing < 6 + 2 * message
    reduction = 2 * (LATENCY + 1 / 2 * 16 / 4)
    own = 6 + message
    assert batch_time(plan) == pytest.approx(3 * own + 2 * own + reduction)
    # With three times the bytes the link is fuller than a stage is busy.
    heavy = problem(LINE)
    heavy["profile"]["candidates"][0]["edge_bytes"] = [30.0] * 3
    heavy["profile"]["candidates"][0].update(forward=[0.1] * 4, backward=[0.1] * 4)
    plan = placed(heavy, [2, 2], [[["a"], ["d"]], [["b"], ["c"]]], zero=0)
    message, crossing = 3 * LATENCY + 30 / 2, 2 * 30 / 2
    stage = max(0.4 + message, crossing)
    assert crossing > 0.4 + message
    assert batch_time(plan) == pytest.approx(3 * stage + 2 * stage + reduction)


def test_shards_sent_in_every_micro_batch_load_links() -> None:
    # The shards of both stages go to and fro between a and b, over the same link: a-c and b-d share nothing.
    cross = [("a", "s0", 8.0), ("b", "s1", 4.0), ("c", "s0", 8.0), ("d", "s1", 8.0), ("s0", "s1", 1.0)]
    plan = placed(problem(cross), [2, 2], [[["a"], ["c"]], [["b"], ["d"]]], zero=3)
    share = 1 / 2 * 16  # Of 16 bytes over two members, in each phase and direction.
    phase = 3 * LATENCY + share / 1
    alone = 6 + 3 * phase + (2 * LATENCY + 6 / 4)
    loaded = 2 * 3 * share / 1  # Two stages, a reduce-scatter and two all-gathers each.
    assert loaded > alone
    assert batch_time(plan) == pytest.approx(3 * loaded + 2 * loaded)


def test_every_rank_has_a_ring_of_its_own() -> None:
    wide = problem([("a", "b", 4.0), ("b", "c", 4.0), ("c", "d", 1.0)], ranks=2)
    plan = placed(wide, [4], [[["a", "c"]], [["b", "d"]]], zero=0)
    # Rank 0 lies on a and b, rank 1 on c and d, whose link is the slowest.
    assert batch_time(plan) == pytest.approx(3 * 12 + 12 + 2 * (LATENCY + 1 / 2 * 32 / 1))
