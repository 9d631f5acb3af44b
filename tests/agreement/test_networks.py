"""The planner against the brute force on random networks that are no hierarchy, and the comparison itself."""

import pytest

from tests.agreement.compare import complaint
from tests.agreement.networks import KINDS, answers_of, draw_network, examine, network_disagreements
from tests.oracle.network_price import price
from tests.seeds import blocks, seeds


def compared(seed: int, kind: str) -> None:
    problem = draw_network(seed, kind)
    _, _, wrong = examine(problem)
    assert not wrong, complaint(f"{kind} seed {seed}", problem, wrong)


@pytest.mark.parametrize("seed", seeds(6, 60, long=[2]))
def test_the_planner_agrees_with_the_brute_force_on_networks(seed):
    compared(seed, "plain")


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(3, 60))
@pytest.mark.parametrize("kind", ["mixed", "ported", "forwarding", "ruled", "parts"])
def test_the_planner_agrees_with_the_brute_force_on_networks_of_a_kind(seed, kind):
    compared(seed, kind)


# In problem 4 the best shard groups are not those of replicas in the order of their first devices.
@pytest.mark.parametrize("seed", seeds(5, 40))
def test_the_planner_agrees_with_the_brute_force_where_shard_groups_are_chosen(seed):
    compared(seed, "sharded")


@pytest.mark.parametrize("seed", seeds(4, 60, long=[1]))
def test_the_planner_agrees_with_the_brute_force_where_chunks_are_dealt(seed):
    compared(seed, "chunked")


FAST, SLOW = 4 * 2.0**30, 2.0**29


@pytest.mark.parametrize(
    ("near", "far"), [((SLOW, 0.0), (FAST, 0.0)), ((FAST, 2.0), (FAST, 0.0)), ((SLOW, 0.0), (FAST, 2.0))]
)
def test_levels_that_are_faster_outside_are_no_hierarchy(near, far):
    """Two pairs of devices with links of one bandwidth and latency inside, and of another between them."""
    links = [[near if one // 2 == other // 2 else far for other in range(4)] for one in range(4)]
    matrix = {
        "bandwidth": [[link[0] for link in row] for row in links],
        "latency": [
            [0.0 if one == other else link[1] for other, link in enumerate(row)] for one, row in enumerate(links)
        ],
    }
    none, half = [0.0] * 4, [2.0**29] * 4
    candidate = {
        "name": "one",
        "degrees": {"tp": 1},
        "width": 1,
        "samples": 1,
        "forward": [0.5] * 4,
        "backward": [1.5] * 4,
        "state": {"dense": {"ranks": [0], "weights": half, "gradients": half, "optimizer": none, "update": none}},
        "recompute": {"none": {"extra": none, "first": none, "more": none, "peak": none}},
        "edge_bytes": [2.0**31] * 3,
    }
    problem = {
        "nest": 1,
        "training": {"global_batch": 13, "schedule": "1f1b"},
        "cluster": {"memory": 2.0**30, "topology": {"matrix": matrix}},
        "search": {"zero": [0]},
        "profile": {"layers": list("abcd"), "edges": [[0, 1], [1, 2], [2, 3]], "candidates": [candidate]},
    }
    _, _, wrong = examine(problem)
    assert not wrong, complaint("pairs", problem, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", blocks(1000, 1200))
def test_the_planner_agrees_with_the_brute_force_on_many_networks(block, kind):
    for seed in block:
        compared(seed, kind)


def written(problem: dict, answer, machine) -> dict:
    """The oracle's own plan as the planner would write it."""
    plan, layers, names = answer.plan, problem["profile"]["layers"], machine.topology.names
    numbers = price(problem, plan, machine)
    return {
        "status": "optimal",
        "batch_time": answer.batch_time,
        "lower_bound": answer.batch_time,
        "micro_batches": numbers["micro_batches"],
        "fits": True,
        "data_parallel": plan["replicas"],
        "rank_order": plan["rank_order"],
        "schedule": plan["schedule"],
        "stages": [
            {**stage, **priced, "layers": [layers[layer] for layer in stage["layers"]]}
            for stage, priced in zip(plan["stages"], numbers["stages"], strict=True)
        ],
        "placement": {"replicas": [[[names[d] for d in block] for block in blocks] for blocks in plan["devices"]]},
        "problem": problem,
    }


@pytest.fixture(scope="module")
def agreed():
    """A problem whose best plan has several stages, with the oracle's answer and the document of it."""
    for seed in range(100):
        problem = draw_network(seed)
        machine, answer = answers_of(problem)
        if answer.plan is not None and len(answer.plan["stages"]) > 1 and answer.plan["replicas"] > 1:
            return problem, answer, machine, written(problem, answer, machine)
    raise AssertionError("no problem has such a plan")


def told(agreed, **changed) -> str:
    problem, answer, machine, document = agreed
    return "\n".join(network_disagreements(problem, answer, machine, {**document, **changed}))


def test_the_oracles_own_plan_agrees(agreed):
    assert told(agreed) == ""
    assert told(agreed, status="feasible", lower_bound=0.0) == ""


def test_wrong_plans_disagree(agreed):
    _, answer, _, document = agreed
    least = answer.batch_time
    assert "batch_time is" in told(agreed, batch_time=least * (1 + 1e-8), lower_bound=least * (1 + 1e-8))
    assert "lower_bound is" in told(agreed, lower_bound=least * 0.99)
    assert "the oracle finds" in told(agreed, status="feasible", lower_bound=least * 1.01)
    assert "status" in told(agreed, status="infeasible")
    assert "no placement" in told(agreed, placement=None)
    first, *others = document["placement"]["replicas"]
    assert "have one rank" in told(agreed, placement={"replicas": [first, first, *others[1:]]})
    slower = {**document["stages"][0], "time": document["stages"][0]["time"] * 1.01}
    assert "stages[0].time" in told(agreed, stages=[slower, *document["stages"][1:]])
