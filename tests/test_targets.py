"""Every registered framework as a target: what it is planned for, it is exported without a refusal."""

from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nest import api
from nest.api import nearest
from nest.deployment import violations
from nest.errors import InputError
from nest.formulate.problem import self_contained
from nest.hooks.registry import registry
from nest.io import read, structure
from nest.spec import PlanDocument, Problem
from nest.whatif.launch_files import export_checked
from tests.seeds import blocks, few, seeds

EXAMPLES = Path(__file__).parent.parent / "examples"
QUICK = ("llama-2-7b-on-64-h100", "llama-2-7b-on-tpu-v4-torus", "measured-layers")
"""Examples that are solved within a few seconds for any target."""

CONSTRAINTS: tuple[list[str], ...] = (
    [],
    [],
    ["pp > 1"],
    ["tp > 1"],
    ["pp > 1", "zero > 0"],
    ["tp * pp >= 4"],
    ["chunks > 1 or pp > 1"],
    ["ep > 1 or cp > 1"],
)
"""What brings out plans that are seldom the best on a few devices."""

TARGETS = sorted(name for name, exporter in registry().exporters().items() if hasattr(exporter, "limits"))
LIKE_OTHERS = (
    "accelerate",
    "axolotl",
    "lightning",
    "llama-factory",
    "megatron-bridge",
    "ms-swift",
    "transformers",
    "verl",
)
"""Frameworks whose limits are those of others but for details, which small problems bring out."""


def refused(problem: Any, target: str) -> bool:
    """Whether a framework trains no such models at all, whatever the plan."""
    try:
        registry().exporters()[target].limits(structure(problem, Problem))  # type: ignore[attr-defined]
    except InputError:
        return True
    return False


def exported(problem: Any, target: str) -> PlanDocument | None:
    """The best plan for a target, which must be exported as it is; None: the target cannot run such problems."""
    if refused(problem, target):
        return None
    plan = api.solve(problem)
    if plan.status != "infeasible":
        made = api.exported(plan, (target,))
        assert made.files
        assert not made.nearest
    return plan


@pytest.mark.longer
@pytest.mark.parametrize(
    ("example", "target"),
    [
        pytest.param(example, target, marks=[pytest.mark.slow] if example != QUICK[0] or target in LIKE_OTHERS else [])
        for example in QUICK
        for target in TARGETS
    ],
)
def test_the_best_plan_for_a_target_is_exported_as_it_is(example: str, target: str) -> None:
    path = EXAMPLES / example / "problem.yaml"
    written = self_contained(read(path, Problem), path.parent).to_dict()
    plan = exported(written | {"search": {**written["search"], "target": target}}, target)
    assert plan is None or plan.status in ("optimal", "near-optimal")


@pytest.mark.longer
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", seeds(3, 12))
def test_small_plans_for_a_target_are_exported_as_they_are(seed: int, target: str) -> None:
    exported(random_problem(seed, target), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("block", blocks(1000, 1200))
def test_many_small_plans_for_a_target_are_exported_as_they_are(block: range, target: str) -> None:
    for seed in block:
        exported(random_problem(seed, target), target)


@pytest.mark.longer
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", seeds(1, 6))
def test_nearest_plans_are_exported_as_they_are(seed: int, target: str) -> None:
    problem, plan = solved(seed)
    if plan.status == "infeasible" or refused(problem, target):
        return
    found = nearest(plan, target)
    if found is None:
        return
    limits = registry().exporters()[target].limits(structure(found.plan.problem, Problem))  # type: ignore[attr-defined]
    assert violations(found.plan, limits, target) == []
    api.exported(found.plan, (target,))


@cache
def solved(seed: int) -> tuple[dict[str, Any], PlanDocument]:
    """A random problem without a target, and its best plan."""
    problem = random_problem(seed, None)
    return problem, api.solve(problem)


def random_problem(seed: int, target: str | None) -> dict[str, Any]:
    """A small transformer on a few devices, dense or of experts, with little memory more often than not."""
    random = Random(seed)
    heads = random.choice([4, 6, 8])
    model: dict[str, Any] = {
        "layers": random.choice([4, 5, 6, 8, 12]),
        "hidden": heads * random.choice([64, 128]),
        "ffn": random.choice([512, 1536]),
        "heads": heads,
        "kv_heads": random.choice([heads, 2]),
        "vocab": random.choice([1000, 8192]),
        "gated_mlp": True,
        "tied_embeddings": random.random() < 0.3,
    }
    if random.random() < 0.4:
        model |= {"experts": 8, "top_k": 2, "moe_ffn": 256}
    training: dict[str, Any] = {
        "global_batch": random.choice([8, 12, 32]),
        "sequence_length": random.choice([128, 1024]),
        "schedule": random.choice([["1f1b"], ["1f1b", "interleaved"], ["1f1b", "gpipe", "interleaved"]]),
        "precision": random.choice(["bf16", "bf16", "fp16"]),
    }
    if random.random() < 0.5:
        training["overlap"] = {"data": True}
    search: dict[str, Any] = {} if target is None else {"target": target}
    if random.random() < 0.3:
        search["zero_degree"] = ["all", 2, 4]
    if random.random() < 0.2:
        search["mixed"] = True
    if random.random() < 0.25:
        training |= {"uneven_batch": True, "global_batch": random.choice([10, 30])}
    return {
        "nest": 1,
        "model": {"transformer": model},
        "training": training,
        "cluster": {
            "device": random.choice(["h100-sxm", "a100-sxm-40g"]),
            "levels": [
                {"name": "node", "fanout": random.choice([2, 3, 4, 4]), "bandwidth": 3e11, "latency": 3e-6},
                {"name": "net", "fanout": random.choice([1, 2, 3, 4]), "bandwidth": random.choice([5e9, 5e10])},
            ],
            "memory": random.choice(["6 GiB", "8 GiB", "40 GiB"]),
            "reserve": 0,
        },
        "search": search,
        "constraints": random.choice(CONSTRAINTS),
    }


@pytest.mark.parametrize("target", few([None, *TARGETS], None))
def test_runs_on_names_those_that_export_the_plan(target: str | None) -> None:
    problem: dict[str, Any] = {
        "nest": 1,
        "model": {"transformer": {"layers": 4, "hidden": 512, "ffn": 2048, "heads": 8, "vocab": 1024}},
        "training": {"global_batch": 16, "sequence_length": 512},
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 4, "link": "nvlink4"}]},
        "search": {} if target is None else {"target": target},
    }
    plan = api.solve(problem)
    taken = exporters_of(plan)
    assert target is None or target in taken
    assert list(plan.runs_on or ()) == taken
    for stated in (taken, taken[:1], []):  # Fewer: made before anybody knew the others.
        assert api.check({**plan.to_dict(), "runs_on": stated}).ok
    for name in TARGETS if target is None else [name for name in TARGETS if name not in taken][:1]:
        assert api.check({**plan.to_dict(), "runs_on": [name]}).ok == (name in taken)


def exporters_of(plan: PlanDocument) -> list[str]:
    """The frameworks that the plan can be exported for as it is."""
    taken = []
    for name in TARGETS:
        with suppress(InputError):
            export_checked(plan, (name,), registry())
            taken.append(name)
    return taken


@pytest.mark.longer
@pytest.mark.parametrize("order", ["pp-inner", "dp-inner"])
@pytest.mark.parametrize("seed", [*seeds(6, 51), *seeds(2, 149, 51)])
def test_runs_on_of_random_plans_names_those_that_export_them(seed: int, order: str) -> None:
    """Ranks that no launcher starts where they lie, machines filled in part, experts across replicas."""
    problem, random = random_problem(seed, "none"), Random(seed)
    fanouts = [level["fanout"] for level in problem["cluster"]["levels"]]
    size = fanouts[0] * fanouts[1]
    problem["search"]["rank_order"] = order
    problem["constraints"] = ["pp > 1", "replicas > 1", f"devices <= {random.randint(min(size, 4), size)}"]
    plan = api.solve(problem)
    if plan.status != "infeasible":
        assert list(plan.runs_on or ()) == exporters_of(plan)
