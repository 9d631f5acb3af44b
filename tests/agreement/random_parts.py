"""Random problems in which stages may recompute some of their layers, and memory often asks for it."""

from random import Random

from nest.units import LARGEST
from tests.agreement import random_pools
from tests.agreement.problems import random_plan
from tests.oracle import pools
from tests.oracle import price as alone
from tests.oracle.parts import known_modes, pairs_of

OWN_NAMES = {"full": "thrifty", "selective": "careful"}
"""What a profile may call its modes; they are heavier the later they stand there."""
RULES = (
    "uniform(recompute)",
    "uniform(recompute)",
    "recompute_layers <= 2",
    "recompute_layers != 1",
    "recompute_layers in [0, 2, 3]",
    "recompute_layers * pp <= 4",
    "recompute_layers < 2 or zero > 0",
    "recompute != 'none' or recompute_layers == 0",
    "recompute_layers >= 1",
)


UNABLE = "layers can run in their modes"


def recompute_parts(random: Random, problem: dict) -> None:
    """Let stages recompute some of their layers, in memory near what such a plan needs, mostly."""
    search = problem.setdefault("search", {})
    search["recompute_layers"] = True
    candidates = problem["profile"]["candidates"]
    if len(known_modes(problem)) == 1 or random.random() < 0.3:
        for candidate in candidates:
            mode, lighter = random.choice([("full", "none"), ("full", "none"), ("selective", "none")])
            kept = candidate["recompute"].setdefault(lighter, next(iter(candidate["recompute"].values())))
            candidate["recompute"][mode] = thriftier(random, candidate, kept)
    if random.random() < 0.15 and "recompute" not in (problem.get("fixed") or {}) and not problem.get("constraints"):
        search.pop("recompute", None)
        for candidate in candidates:
            modes = candidate["recompute"].items()
            candidate["recompute"] = {OWN_NAMES.get(name, name): mode for name, mode in modes}
    if random.random() < 0.8:
        search.pop("recompute", None)
    if random.random() < 0.9:
        limit_memory(random, problem)
    if random.random() < 0.3:
        problem["constraints"] = [*problem.get("constraints", []), random.choice(["pp > 1", "pp == 2", "pp <= 2"])]
    if random.random() < 0.4:
        problem["constraints"] = [*problem.get("constraints", []), random.choice(RULES)]
    fixed = problem.get("fixed") or {}
    if random.random() < 0.08 and "recompute" not in fixed and pairs_of(problem, known_modes(problem)):
        search.pop("recompute", None)
        problem["fixed"] = {**fixed, **fixed_part(random, problem)}


def thriftier(random: Random, candidate: dict, kept: dict) -> dict:
    """A mode that runs some of what is kept again."""
    again = [random.choice([0.5, 1.0, 1.0]) * seconds for seconds in candidate["forward"]]
    return {
        "extra": again,
        "first": [size and size * random.choice([0.1, 0.3, 0.6]) for size in kept["first"]],
        "more": [size * random.choice([0.0, 0.2, 0.5]) for size in kept["more"]],
        "peak": [size + random.choice([0.0, 0.5, 2.0]) for size in kept["peak"]],
        "stash_inputs": random.random() < 0.5,
    }


def limit_memory(random: Random, problem: dict) -> None:
    """Give devices the memory that some stage of some plan needs, or a little more or less."""
    module, drawn = (pools, random_pools.random_plan) if pools.has_pools(problem) else (alone, random_plan)
    plans = [plan for _ in range(4) if (plan := drawn(random, problem, random.choice([1, 2, 2, 3]))) is not None]
    can_run = [plan for plan in plans if UNABLE not in module.violations(problem, plan)]
    needs = [stage for plan in can_run for stage in module.price(problem, plan)["stages"]]
    for pool in problem["cluster"].get("pools", [problem["cluster"]]):
        own = sorted(stage["memory"] for stage in needs if stage.get("pool") == pool.get("name"))
        if own:
            wanted = random.choice([*own, own[len(own) // 2], own[-1]]) * random.choice([0.9, 1.0, 1.0, 1.0, 1.1])
            pool["memory"] = min(max(wanted, pool.get("reserve", 0.0) + 0.01), LARGEST)


def fixed_part(random: Random, problem: dict) -> dict:
    """So many layers of every stage, of a mode or of any."""
    mode, rest = random.choice(pairs_of(problem, known_modes(problem)))
    count = random.randint(1, len(problem["profile"]["layers"]))
    said = random.choice([{}, {"recompute": mode}, {"recompute": mode, "recompute_rest": rest}])
    return {"recompute_layers": count, **said}
