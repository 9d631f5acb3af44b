"""Plans that a search might have found, decided under `fixed`: none is faster than what the search proves.

`python -m tests.agreement.decided --seed S --count N`

Models of a few blocks on up to 16 devices, with and without a target. Decisions are drawn of what the target has. What
a search would not try is counted, by the reasons that its plan gives (`outside`).
"""

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any

import nest
from nest.deployment import Limits
from nest.errors import InputError
from nest.formulate.target import limits_of
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import PlanDocument, Problem
from nest.spec.problem import NO_TARGET, RANK_ORDERS

ROUNDING = 1e-9
"""How much faster may be no more than another order of sums."""

TARGETS = (None, NO_TARGET, "megatron", "torchtitan", "deepspeed")
PARTS = (("full", "none"), ("full", "selective"), ("selective", "none"))
"""What stages run their first blocks in, and the others."""

USUAL = ("1f1b", "interleaved")
"""Schedules that are searched where neither a list nor a target says so."""

DECIDED = 30
"""Plans that are decided of each problem."""


@dataclass
class Tally:
    """What came of many plans: counts, why some are outside the space, and what is wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def random_model(random: Random) -> dict[str, Any]:
    """A model whose blocks take long enough for schedules and messages to matter."""
    hidden = random.choice([1024, 2048, 4096])
    model: dict[str, Any] = {
        "layers": random.choice([2, 4, 5, 6, 8, 8, 10, 12]),
        "hidden": hidden,
        "ffn": hidden * random.choice([2, 4]),
        "heads": 16,
        "kv_heads": random.choice([4, 16]),
        "vocab": random.choice([1024, 32000, 128000]),
        "tied_embeddings": random.random() < 0.2,
    }
    if random.random() < 0.25:
        model |= {"experts": random.choice([4, 8]), "top_k": 2, "moe_ffn": hidden}
    return model


def random_problem(random: Random) -> dict[str, Any]:
    """Such a model on a few devices, which it often fills; its target, stack and schedules are left out or named."""
    training: dict[str, Any] = {
        "global_batch": random.choice([4, 8, 12, 16, 32]),
        "sequence_length": random.choice([512, 2048, 4096]),
        "memory_risk": random.choice([0.2, 0.2, 0.5]),
    }
    if random.random() < 0.8:
        training["micro_batch"] = sorted(random.sample([1, 2, 4], random.choice([1, 1, 2])))
    if random.random() < 0.2:
        training["uneven_batch"] = True
    if random.random() < 0.2:
        training["stack"] = random.choice(["none", "fsdp", "deepspeed", "megatron-core"])
    own = {
        "name": "own",
        "memory": "80 GB",
        "memory_bandwidth": "3 TB/s",
        "peak": {"bf16": "1 PFLOP/s"},
        "efficiency": {"matmul": 0.6},
    }
    fanouts = random.choice([(4,), (4,), (8,), (2, 2), (4, 2), (2, 4)])
    levels = [
        {"fanout": fanout, "bandwidth": f"{random.choice([450, 100, 25, 5]) / (number + 1)} GB/s", "latency": "3 us"}
        for number, fanout in enumerate(fanouts)
    ]
    cluster: dict[str, Any] = {"device": random.choice(["h100-sxm", "a100-sxm-80g", own]), "levels": levels}
    if random.random() < 0.6:
        cluster |= {"memory": f"{random.choice([8, 16, 24, 40])} GB", "reserve": "1 GB"}
    search: dict[str, Any] = {"within": 0}
    target = random.choice(TARGETS)
    if target is not None:
        search["target"] = target
    if random.random() < 0.2:
        search["zero_degree"] = random.choice([[2, "all"], ["all", 4]])
    problem = {"nest": 1, "model": {"transformer": random_model(random)}, "training": training, "cluster": cluster}
    return {**problem, "search": search}


def random_decisions(random: Random, problem: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """A plan of a problem that a search has completed, of what its target has; some of it makes no plan."""
    model, training = problem["model"]["transformer"], problem["training"]
    left = prod(level["fanout"] for level in problem["cluster"]["levels"])

    def part(*degrees: int) -> int:
        """A degree that divides the devices that are left."""
        nonlocal left
        degree = random.choice([each for each in degrees if left % each == 0])
        left //= degree
        return degree

    stages = part(1, 2, 2, 4, 8)
    decided: dict[str, Any] = {
        "pp": stages,
        # With a pipeline few frameworks shard gradients.
        "zero": random.choice([each for each in limits.zero if stages == 1 or each < 2 or random.random() < 0.1]),
        "recompute": random.choice(["none", *(limits.recompute or ("none", "selective", "full"))]),
        "rank_order": random.choice(limits.rank_orders or RANK_ORDERS),
        "schedule": random.choice(limits.schedules or ("1f1b",)),
    }
    degrees = {"tp": (1, 1, 2, 4), "cp": (1, 1, 2)}
    decided |= {name: part(*each) for name, each in degrees.items() if _has(limits, name)}
    if _has(limits, "sp"):
        decided["sp"] = decided["tp"] > 1 and random.random() < 0.8
    if "experts" in model and _has(limits, "ep"):
        ranks = decided.get("cp", 1) * left
        decided["ep"] = random.choice([each for each in (1, 2, 4) if ranks % each == 0])
        if _has(limits, "etp") and random.random() < 0.5:
            decided["etp"] = random.choice([1, decided["tp"]])
    sizes = [each for each in training.get("micro_batch") or (1, 2, 4, 8) if training["global_batch"] % each == 0]
    decided["micro_batch"] = random.choice(sizes)
    if limits.zero_degrees and random.random() < 0.5:
        decided["zero_degree"] = random.choice(problem["search"]["zero_degree"])
    lighter = [rest for mode, rest in limits.partial_recompute or PARTS if mode == decided["recompute"]]
    if lighter and (limits.partial_recompute or problem["search"]["target"] == NO_TARGET) and random.random() < 0.6:
        decided |= {"recompute_layers": random.randint(1, model["layers"]), "recompute_rest": random.choice(lighter)}
    if "interleaved" in decided["schedule"] and stages > 1:
        decided["chunks"] = random.randint(2, max(2, (model["layers"] + 2) // stages))
    elif decided["schedule"] in ("1f1b", "gpipe") and 1 < stages < model["layers"] and random.random() < 0.3:
        cuts = sorted(random.sample(range(1, model["layers"]), stages - 1))
        decided["stages"] = [last - first for first, last in zip([0, *cuts], [*cuts, model["layers"]], strict=True)]
    return decided


def _has(limits: Limits, strategy: str) -> bool:
    return limits.strategies is None or strategy in limits.strategies


def limits_here(problem: dict[str, Any]) -> Limits:
    """What the target of a completed problem has; where it has none, everything."""
    name = problem["search"]["target"]
    if name == NO_TARGET:
        return Limits(zero_degrees=True, schedules=USUAL)
    return limits_of(name, structure(problem, Problem), registry(), "search.target")


def fault(best: PlanDocument, plan: PlanDocument) -> str | None:
    """What is wrong with the optimum of a problem, given a plan of it that is decided."""
    assert plan.batch_time is not None
    if best.lower_bound is None:
        return f"infeasible, but a plan takes {plan.batch_time} s"
    if plan.batch_time < best.lower_bound * (1 - ROUNDING):
        return f"at least {best.lower_bound} s, but a plan takes {plan.batch_time} s"
    return None


def examine(random: Random, tally: Tally, plans: int = DECIDED) -> None:
    """One problem, searched, and plans that are decided of it."""
    asked = random_problem(random)
    best = nest.solve(asked)
    whole = dict(best.problem)
    limits, likely = limits_here(whole), 1 - asked["training"]["memory_risk"]
    tally.counts["problems"] += 1
    tally.counts["infeasible"] += best.batch_time is None
    for _ in range(plans):
        decided = random_decisions(random, whole, limits)
        try:
            plan = nest.evaluate({**whole, "fixed": decided})
        except InputError:
            tally.counts["no plan"] += 1
            continue
        if plan.fit_probability is None or plan.fit_probability < likely:
            tally.counts["too full"] += 1
        elif plan.outside:
            tally.counts["outside"] += 1
            tally.reasons.update({kind(each) for each in plan.outside})
        else:
            tally.counts["compared"] += 1
            tally.counts[f"compared, target {whole['search']['target']}"] += 1
            tally.counts["compared, several chunks"] += (plan.chunks or 1) > 1
            if wrong := fault(best, plan):
                tally.wrong.append(f"{wrong}: {json.dumps(decided)} of {json.dumps(asked)}")


def kind(reason: str) -> str:
    """A reason without its numbers."""
    return re.sub(r"\d+", "N", reason.partition(" (`")[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="problems")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first; the others follow it")
    arguments = parser.parse_args()
    tally = Tally()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        told = len(tally.wrong)
        examine(Random(seed), tally)
        for each in tally.wrong[told:]:
            print(f"seed {seed}: {each}", flush=True)
    for counts in (tally.counts, tally.reasons):
        print(*(f"{number:8} {name}" for name, number in sorted(counts.items())), sep="\n")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
