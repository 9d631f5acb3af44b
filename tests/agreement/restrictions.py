"""Restrict random problems: a constraint, a fixed decision or a shorter list never makes the optimum faster.

`python -m tests.agreement.restrictions --seed S --count N`

Three of four problems have a tiny model, the others a profile. A decision that a list left out does not hold by default
(say, a schedule) may be faster, but then the plan has to say that it is `outside` the space searched.
"""

import argparse
import copy
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from random import Random
from time import perf_counter
from typing import Any

import nest
from nest.errors import InputError
from nest.formulate.shard import USUAL_MICRO_BATCHES
from nest.hooks.registry import registry
from nest.spec.problem import RANK_ORDERS, ZERO_STAGES
from tests.agreement.problems import random_problem
from tests.agreement.rules import random_constraints, random_fixed

ROUNDING = 1e-9
"""How much faster may be no more than another order of sums."""

CHECK_EVERY = 10
"""`nest check` has to accept both plans of one problem in so many."""

DEGREES = ("tp", "cp", "ep")
SCHEDULES = ("1f1b", "gpipe", "nest", "interleaved", "zero-bubble", "zero-bubble-h2")


@dataclass
class Tally:
    """What came of many problems."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def random_model_problem(random: Random) -> dict[str, Any]:
    """A model of a few blocks on up to 8 devices, mostly with interleaving, and memory that often matters."""
    experts = random.random() < 0.2
    model: dict[str, Any] = {
        "layers": random.choice([2, 4, 4, 5, 6, 6, 7, 8, 10, 14]),
        "hidden": random.choice([256, 1024, 2048]),
        "ffn": random.choice([1024, 8192]),
        "heads": 8,
        "vocab": random.choice([512, 32000, 128000]),
        "tied_embeddings": random.random() < 0.2,
    }
    if experts:
        model |= {"experts": 4, "top_k": 2, "moe_ffn": 512}
    training: dict[str, Any] = {
        "global_batch": random.choice([4, 8, 8, 12, 16, 32]),
        "sequence_length": random.choice([256, 1024, 4096]),
        "stack": "none",  # Left out, it is that of the target, with which the same plan takes another time.
    }
    if random.random() < 0.8:
        training["schedule"] = random.choice(
            ["interleaved"] * 2
            + [["1f1b", "interleaved"], ["interleaved", "gpipe"], ["1f1b", "zero-bubble"], list(SCHEDULES)]
        )
    if random.random() < 0.7:
        training["micro_batch"] = random.sample([1, 1, 2, 2, 4, 3], random.choice([1, 1, 2]))
    for name in ("uneven_batch", "hiding"):
        if random.random() < 0.3:
            training[name] = True
    fanouts = random.choice([(4,), (4,), (2, 2), (4, 2), (2, 4), (3, 2), (2, 3)])
    return {
        "nest": 1,
        "model": {"transformer": model},
        "training": training,
        "cluster": {
            "device": {
                "name": "own",
                "memory": f"{random.choice([2, 4, 16, 80])} GB",
                "memory_bandwidth": "3 TB/s",
                "peak": {"bf16": "1 PFLOP/s"},
                "efficiency": {"matmul": 0.6},
            },
            "levels": [
                {
                    "name": f"level {number}",
                    "fanout": fanout,
                    "bandwidth": f"{random.choice([450, 100, 25, 5]) / (number + 1)} GB/s",
                    "latency": f"{random.choice([0, 3, 20])} us",
                }
                for number, fanout in enumerate(fanouts)
            ],
        },
        **_random_lists(random, experts=experts),
    }


def _random_lists(random: Random, *, experts: bool) -> dict[str, Any]:
    search: dict[str, Any] = {}
    if random.random() < 0.6:
        search["zero"] = sorted(random.sample(ZERO_STAGES, random.choice([1, 1, 2, 3])))
    if random.random() < 0.2:
        search["zero_degree"] = random.choice([[2, "all"], [2, 4], ["all"]])
    if random.random() < 0.2:
        search["recompute"] = random.sample(["none", "selective", "full"], random.randint(1, 2))
    if random.random() < 0.3:
        search["target"] = random.choice(targets())
    if random.random() < 0.03 and not experts:
        search["mixed"] = True
    if random.random() < 0.2:
        search["granularity"] = random.choice(["layer", "block", "operator"])
    strategies = {name: random.choice([[1, 2], [2], [1, 4], [True], [1, 2, 4]]) for name in DEGREES}
    found: dict[str, Any] = {"strategies": {n: each for n, each in strategies.items() if random.random() < 0.25}}
    if search:
        found["search"] = search
    if random.random() < 0.7:
        # Where one stage is the fastest no schedule matters.
        found["constraints"] = [
            random.choice(["pp > 1", "pp > 1", "pp >= 3", "pp == 2", "replicas == 1", "pp * tp > 3"])
        ]
    return found


@cache
def targets() -> tuple[str, ...]:
    """The exporters that say what their frameworks can run."""
    return tuple(name for name, each in registry().exporters().items() if hasattr(each, "limits"))


def restrict(random: Random, problem: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The problem with one to three restrictions more, and what they are."""
    restricted, done = copy.deepcopy(problem), []
    choices = (_constrain, _fix, _fix, _fix, _shorten, _shorten, _aim)
    for change in random.choices(choices, k=random.choice([1, 1, 2, 3])):
        if told := change(random, restricted):
            done.append(told)
    return restricted, done


Change = Callable[[Random, dict[str, Any]], str | None]


def _constrain(random: Random, problem: dict[str, Any]) -> str:
    if "profile" in problem:
        texts = random_constraints(random, problem)[:1]
    else:
        number = random.randint(1, 4)
        texts = [
            random.choice(
                [
                    f"pp == {number}",
                    f"pp >= {number}",
                    f"chunks >= {number}",
                    f"chunks != {number}",
                    f"tp <= {number}",
                    f"tp * pp == {2 * number}",
                    f"replicas <= {number}",
                    f"dp % {number} == 0",
                    f"zero >= {random.randint(0, 3)}",
                    f"micro_batches >= {number}",
                    f"micro_batch == {number}",
                    f"devices <= {2 * number}",
                    f"zero_degree <= {number}",
                    "schedule == 'interleaved'",
                    "uniform(recompute)",
                    "recompute != 'none'",
                    f"recompute_layers <= {number}",
                    f"recompute_layers != {number}",
                    'same_stage("embedding", "head")',
                    'same_stage("layers.0", "layers.1")',
                ]
            )
        ]
    problem["constraints"] = [*problem.get("constraints", []), *texts]
    return f"constraint {texts[0]}"


def _fix(random: Random, problem: dict[str, Any]) -> str | None:
    if "profile" in problem:
        decided = random_fixed(random, problem)
    else:
        layers = problem["model"]["transformer"]["layers"]
        pp = random.choice([1, 2, 2, 2, 3, 4, 4])
        every: list[dict[str, Any]] = [
            {"pp": pp},
            *[_random_chunks(random, layers)] * 4,
            {"chunks": random.choice([1, 2, 3, 4, 5, 6, 7, 8])},
            {"schedule": random.choice(SCHEDULES)},
            {"micro_batch": random.choice([1, 2, 3, 4, 8, 16])},
            {"micro_batches": random.choice([1, 2, 4, 8])},
            {"dp": random.choice([1, 2, 3, 4])},
            {"replicas": random.choice([1, 2, 3, 4])},
            {"devices": random.choice([2, 4, 6, 8])},
            {"width": random.choice([1, 2, 4])},
            {"zero": random.choice(ZERO_STAGES)},
            {"zero": random.choice(ZERO_STAGES), "zero_degree": random.choice([1, 2, 4, "all"])},
            {"recompute": random.choice(["none", "selective", "full"])},
            {"recompute": random.choice(["selective", "full"]), "recompute_layers": random.randint(1, layers)},
            {"rank_order": random.choice(RANK_ORDERS)},
            {"tp": random.choice([1, 2, 4, True, False])},
            {"sp": random.choice([True, False])},
            {"cp": random.choice([1, 2, 4, True])},
            {"ep": random.choice([1, 2, 4])},
            {"etp": random.choice([1, 2, 4])},
            {"batch": random.choice([1, 2])},
            {"stages": _random_counts(random, layers)},
        ]
        decided = random.choice(every)
    # What is decided already stays: another decision in its place is no restriction.
    added = {name: value for name, value in decided.items() if name not in problem.get("fixed", {})}
    problem["fixed"] = {**problem.get("fixed", {}), **added}
    return "fixed " + " ".join(sorted(added)) if added else None


def _random_chunks(random: Random, layers: int) -> dict[str, Any]:
    """Stages and chunks, mostly such that blocks come out even, or blocks with embedding and head."""
    numbers = [(pp, chunks) for pp in (2, 3, 4) for chunks in range(2, 9)]
    even = [each for each in numbers if any(count % (each[0] * each[1]) == 0 for count in (layers, layers + 2))]
    pp, chunks = random.choice(even if even and random.random() < 0.8 else numbers)
    return {"pp": pp, "chunks": chunks, **({"schedule": "interleaved"} if random.random() < 0.5 else {})}


def _random_counts(random: Random, layers: int) -> list[int]:
    cuts = sorted(random.sample(range(1, layers), random.randint(1, min(3, layers - 1))))
    return [after - before for before, after in zip([0, *cuts], [*cuts, layers], strict=True)]


def _shorten(random: Random, problem: dict[str, Any]) -> str | None:
    """A list with fewer choices than it had, or had by default; or nothing where there is no choice to take."""
    search, training = problem.setdefault("search", {}), problem["training"]
    profile = problem.get("profile")
    modes = sorted({mode for each in profile["candidates"] for mode in each["recompute"]}) if profile else []
    lists: list[tuple[dict[str, Any], str, list[Any]]] = [
        (training, "schedule", ["1f1b"]),
        (search, "zero", list(ZERO_STAGES)),
        (search, "rank_order", list(RANK_ORDERS)),
        (search, "recompute", modes or ["none", "selective", "full"]),
        (search, "zero_degree", ["all"]),
    ]
    if profile is None:
        usual = [size for size in USUAL_MICRO_BATCHES if size <= training["global_batch"]]
        lists.append((training, "micro_batch", usual))
        lists.append((problem["strategies"], "tp", [1, 2, 4, 8, 16]))
        lists += [(problem["strategies"], name, [1]) for name in ("cp", "etp", "batch")]
    flags = [(search, "mixed"), (training, "uneven_batch"), (search, "recompute_layers")]
    if random.random() < 0.2:
        section, name = random.choice(flags)
        section[name] = False
        return f"no {name}"
    if random.random() < 0.15 and search.get("granularity", "layer") == "layer":
        search["granularity"] = "block"
        return "granularity"
    section, name, usual = random.choice(lists)
    written = section.get(name)
    given = usual if written is None else written if isinstance(written, list) else [written]
    section[name] = random.sample(given, random.randint(1, len(given)))
    return f"shorter {name}"


def _aim(random: Random, problem: dict[str, Any]) -> str | None:
    if "profile" in problem or problem.get("search", {}).get("target") is not None:
        return None
    problem.setdefault("search", {})["target"] = random.choice(targets())
    return "target"


def solved(problem: dict[str, Any]) -> Any:
    """The optimum; None where the problem is refused."""
    try:
        return nest.solve(problem)
    except InputError:
        return None


def faults(free: Any, restricted: Any) -> list[str]:
    """What is wrong with the optimum of a restricted problem, given that of the free one."""
    if restricted is None or restricted.batch_time is None or restricted.outside:
        return []
    if free is None:
        return []
    if free.batch_time is None:
        return ["infeasible, until it was restricted"]
    if restricted.batch_time < free.batch_time * (1 - ROUNDING):
        return [f"{free.batch_time} s became {restricted.batch_time} s"]
    return []


def usual(random: Random, problem: dict[str, Any]) -> dict[str, Any]:
    """Decisions that the lists of a problem with a model allow."""
    search, training = problem.get("search", {}), problem["training"]
    schedules = training.get("schedule", "1f1b")
    return {
        "zero": random.choice(search.get("zero", ZERO_STAGES)),
        "recompute": random.choice(search.get("recompute", ["none", "selective", "full"])),
        "micro_batch": random.choice(training.get("micro_batch", [1, 2])),
        "schedule": schedules if isinstance(schedules, str) else random.choice(schedules),
        "pp": random.choice([2, 2, 3, 4]),
        **{name: each[0] for name, each in problem.get("strategies", {}).items()},
    }


def priced_faults(random: Random, free: Any, restricted: dict[str, Any], tally: Tally) -> list[str]:
    """What is wrong with what `nest evaluate` says of a restricted problem's decisions."""
    try:
        plan = nest.evaluate({**restricted, "fixed": {**usual(random, restricted), **restricted.get("fixed", {})}})
    except InputError:
        tally.counts["evaluate refuses"] += 1
        return []
    if not plan.fits or plan.violates or plan.outside:
        tally.counts["evaluate: outside, or breaks a rule"] += 1
        return []
    tally.counts["evaluate: inside"] += 1
    return [f"evaluate, {each}" for each in faults(free, plan)]


def examine(seed: int, tally: Tally) -> None:
    """One problem, and one that is restricted."""
    random = Random(seed)
    model = random.random() < 0.75
    problem = random_model_problem(random) if model else random_problem(random, random.choice(["plain", "chunked"]))
    restricted, done = restrict(random, problem)
    tally.counts["all"] += 1
    tally.counts["a model" if model else "a profile"] += 1
    free, found = solved(problem), solved(restricted)
    tally.counts.update({f"restricted by: {told.partition(' ')[0]}" for told in done})
    tally.counts["has a plan unrestricted"] += free is not None and free.batch_time is not None
    if free is not None and free.chunks is not None and free.chunks > 1:
        tally.counts["the optimum has several chunks"] += 1
    if found is None:
        tally.counts["refused"] += 1
    elif found.batch_time is None:
        tally.counts["no plan is left"] += 1
    else:
        tally.counts["said to be outside" if found.outside else "compared"] += 1
        tally.counts["slower"] += bool(free and free.batch_time and found.batch_time > free.batch_time * (1 + ROUNDING))
    wrong = faults(free, found)
    if model:
        wrong += priced_faults(random, free, restricted, tally)
    if seed % CHECK_EVERY == 0:
        wrong += [
            f"check: {each}" for plan in (free, found) if plan is not None for each in nest.check(plan).disagreements
        ]
    if wrong:
        tally.counts["wrong"] += 1
        tally.wrong.append(f"seed {seed}: {wrong}\n  {done}\n  {json.dumps(restricted)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="problems to restrict")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first; the others follow it")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop before the next problem after these")
    arguments = parser.parse_args()
    start, tally = perf_counter(), Tally()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        if perf_counter() - start > arguments.seconds:
            break
        told = len(tally.wrong)
        try:
            examine(seed, tally)
        except Exception as error:
            tally.counts["wrong"] += 1
            tally.wrong.append(f"seed {seed}: {type(error).__name__}: {error}")
        print(*tally.wrong[told:], sep="\n", end="\n" if tally.wrong[told:] else "", flush=True)
    for name in sorted(tally.counts):
        print(f"{tally.counts[name]:8} {name}")
    print(
        f"{tally.counts['all']} problems from seed {arguments.seed}: {tally.counts['wrong']} wrong; "
        f"{perf_counter() - start:.1f} s"
    )
    return 1 if tally.counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
