"""What the tutorial claims of networks and memory, recomputed from the instances the plans were chosen from."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from ruamel.yaml import YAML

import nest
from nest.formulate.fixed_plan import decided_instance
from nest.hooks.registry import registry
from nest.instance import Candidate, Instance
from nest.io import read, structure
from nest.spec import PlanDocument, Problem
from tests.docs.document import REPOSITORY, blocks

TUTORIAL = REPOSITORY / "docs" / "tutorial"
TEXT = (TUTORIAL / "network-and-memory.md").read_text()
BANDWIDTHS = ("50 GB/s", "2 GB/s", "1 GB/s", "0.1 GB/s")


def problem(name: str) -> dict[str, Any]:
    return read(TUTORIAL / name, Problem).to_dict()


@pytest.fixture(scope="module")
def behind_spines() -> list[PlanDocument]:
    """Plans for the two racks, the spine slower each time."""
    plans = []
    for bandwidth in BANDWIDTHS:
        written = problem("two-racks.yaml")
        written["cluster"]["levels"][-1]["bandwidth"] = bandwidth
        plans.append(nest.solve(written))
    return plans


def blocks_of(plan: PlanDocument, instance: Instance, stage: int) -> list[int]:
    """First devices of a stage's blocks, replica by replica (PROBLEM.md section 3)."""
    assert plan.candidate is not None
    width, replicas = plan.candidate.width, plan.data_parallel or 1
    own = width * (instance.cluster.size // (width * replicas))
    return [
        plan.stages[stage].devices[0] + replica * (own if plan.rank_order == "pp-inner" else width)
        for replica in range(replicas)
    ]


def crossing_bytes(plan: PlanDocument) -> tuple[float, float]:
    """Bytes over the outermost level in one batch: of tensors between stages, and of parameters and gradients."""
    instance = decided_instance(structure(plan.problem, Problem), plan, registry())
    assert plan.candidate is not None
    candidate = next(each for each in instance.candidates if each.name == plan.candidate.name)
    layer = {name: index for index, name in enumerate(instance.graph.layers)}
    stages = [{layer[name] for name in stage.layers} for stage in plan.stages]
    between, micro_batches = 0.0, plan.micro_batches or 0
    inner = instance.cluster.capacities[-2]
    for index in range(1, len(stages)):
        behind = set().union(*stages[index:])
        here, there = (blocks_of(plan, instance, place) for place in (index - 1, index))
        apart = sum(one // inner != other // inner for one, other in zip(here, there, strict=True))
        sent = sum(
            float(size)
            for (producer, consumers), size in zip(instance.graph.tensors, candidate.tensor_bytes, strict=True)
            if producer not in behind and behind & set(consumers)
        )
        between += 2 * apart * micro_batches * sent * candidate.width
    return between, sum(reduced_bytes(plan, instance, candidate, index, list(s)) for index, s in enumerate(stages))


def reduced_bytes(plan: PlanDocument, instance: Instance, candidate: Candidate, stage: int, layers: list[int]) -> float:
    """Bytes a hierarchical ring sends over the outermost level for a stage's gradients and weights, in one batch."""
    total, micro_batches = 0.0, plan.micro_batches or 0
    for group in candidate.state:
        assert group.ranks == (0,)
        members = blocks_of(plan, instance, stage)
        outermost = instance.cluster.shape(members)[-1]
        gradients, weights = (float(values[layers].sum()) for values in (group.gradients, group.weights))
        passes = {
            0: 2 * gradients,
            1: gradients + weights,
            2: micro_batches * gradients + weights,
            3: micro_batches * (gradients + 2 * weights),
        }[plan.stages[stage].zero]
        # Each of the members that share a place in their racks sends its part; every rank of the block does so.
        parts = len(members) // outermost
        total += (outermost - 1) / outermost * passes / parts * len(members) * candidate.width
    return total


@pytest.mark.longer
def test_less_crosses_a_slower_spine(behind_spines: list[PlanDocument]) -> None:
    assert all(plan.status == "optimal" for plan in behind_spines)
    totals = [sum(crossing_bytes(plan)) for plan in behind_spines]
    assert all(slower <= faster for faster, slower in pairwise(totals)), totals
    assert totals[1] < totals[0] / 2
    assert totals[-1] == 0


def test_replicas_leave_the_spine_before_stages_do(behind_spines: list[PlanDocument]) -> None:
    crossing = [crossing_bytes(plan) for plan in behind_spines]
    assert crossing[0][0] == 0 < crossing[0][1]
    assert crossing[1][0] > 0 == crossing[1][1]
    assert behind_spines[1].rank_order == "dp-inner"


def test_the_usual_plan_falls_behind(behind_spines: list[PlanDocument]) -> None:
    first = behind_spines[0]
    assert first.candidate is not None
    usual = {
        **first.candidate.degrees,
        "sp": first.candidate.degrees["sp"] > 1,
        "pp": len(first.stages),
        "replicas": first.data_parallel,
        "rank_order": first.rank_order,
        "micro_batch": first.candidate.samples,
        "zero": first.stages[0].zero,
        "recompute": first.stages[0].recompute,
    }
    lost = [(nest.evaluate(plan.problem, fix=usual).batch_time or 0) / (plan.batch_time or 1) for plan in behind_spines]
    assert lost[0] == pytest.approx(1, rel=1e-9)
    assert lost == sorted(lost)
    assert lost[-1] > 1.5


def test_the_traffic_the_tutorial_computes_is_right(behind_spines: list[PlanDocument]) -> None:
    names: dict[str, Callable[[PlanDocument], tuple[float, float]]] = {}
    source = next(block for block in blocks(TEXT) if block.file == "spine.py")
    exec("\n".join(source.lines), names)
    for plan in behind_spines:
        assert names["over_the_spine"](plan) == pytest.approx(crossing_bytes(plan), rel=1e-9)


def parts(plan: PlanDocument) -> float:
    """Into how many parts a plan divides the model's weights."""
    assert plan.candidate is not None
    sharded = max((plan.data_parallel or 1) if stage.zero >= 3 else 1 for stage in plan.stages)
    return plan.candidate.width * len(plan.stages) * sharded


def recomputes(plan: PlanDocument) -> bool:
    return any(stage.recompute != "none" for stage in plan.stages)


@pytest.mark.longer
def test_smaller_devices_divide_the_model_more() -> None:
    plans = []
    devices = (("a100-sxm-80g", None), ("a100-sxm-40g", None), ("a100-sxm-40g", "24 GB"), ("a100-sxm-40g", "20 GB"))
    for device, memory in devices:
        written = problem("one-node.yaml")
        written["cluster"] |= {"device": device} | ({"memory": memory} if memory else {})
        plans.append(nest.solve(written))
    whole, sharded, *_ = plans
    assert all(plan.status == "optimal" and plan.fits for plan in plans)
    assert [parts(plan) for plan in plans] == [8, 2, 8, 8]
    assert [recomputes(plan) for plan in plans] == [False, False, False, True]
    assert [plan.candidate.degrees["tp"] for plan in plans if plan.candidate] == [1, 2, 4, 4]
    assert [len(plan.stages) for plan in plans] == [1, 1, 2, 2]
    assert [stage.zero for stage in (*whole.stages, *sharded.stages)] == [3, 2]
    times = [plan.batch_time or 0 for plan in plans]
    assert times == sorted(times)
    assert max(stage.memory for stage in whole.stages) > sharded.summary["memory_capacity"]


@pytest.mark.longer
def test_data_parallelism_alone_recomputes() -> None:
    block = next(block for block in blocks(TEXT) if block.file == "sharded-only.yaml")
    plan = nest.solve(YAML(typ="safe").load("\n".join(block.lines)))
    assert plan.status == "near-optimal"
    assert recomputes(plan)
    assert [stage.zero for stage in plan.stages] == [3]
