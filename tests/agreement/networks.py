"""Compare the planner with the oracle on many random networks that are no hierarchy.

`python -m tests.agreement.networks --seed S --count N [--kind KIND] [--output FOLDER]`

With a folder, every problem that they disagree about is written there.
"""

import argparse
import json
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter

from tests.agreement.compare import as_json, check_diagnosis, complaint, planner
from tests.agreement.random_networks import (
    random_chunked_problem,
    random_forwarding_problem,
    random_network_problem,
    random_parts_problem,
    random_ported_problem,
    random_ruled_problem,
    random_sharded_problem,
)
from tests.oracle.brute_force import FITS, Answer
from tests.oracle.check import check_infeasible, differences, recompute_of, same
from tests.oracle.network_plans import Search
from tests.oracle.network_price import Machine, price, violations

PROVED = 1e-6
"""CP-SAT works on integers: it proves that no plan is better by more than this share (PROBLEM.md section 5)."""


KINDS = {
    "plain": random_network_problem,
    "mixed": partial(random_network_problem, mixed=True, most=6),
    "sharded": random_sharded_problem,
    "ported": random_ported_problem,
    "ruled": random_ruled_problem,
    "forwarding": random_forwarding_problem,
    "chunked": random_chunked_problem,
    "parts": random_parts_problem,
}
"""Kinds of problems: one candidate for all stages, several, shard groups, all ports, rules, links all alike, chunks,
stages that recompute some layers."""


def draw_network(seed: int, kind: str = "plain") -> dict:
    """The problem of a seed."""
    return KINDS[kind](Random(seed))


def placed_plan(document: dict, machine: Machine) -> dict:
    """The decisions of a plan document in the oracle's own form, blocks on the devices that the document names."""
    layers = document["problem"]["profile"]["layers"]
    index = {name: i for i, name in enumerate(machine.topology.names)}
    return {
        "replicas": document["data_parallel"],
        "rank_order": document["rank_order"],
        "schedule": document["schedule"],
        "chunks": document.get("chunks", 1),
        "zero_degree": document.get("zero_degree"),
        "stages": [
            {
                "layers": [layers.index(name) for name in stage["layers"]],
                **{key: stage[key] for key in ("candidate", "zero")},
                "recompute": recompute_of(stage),
                "chunks": [[layers.index(name) for name in chunk] for chunk in stage.get("chunks") or ()],
            }
            for stage in document["stages"]
        ],
        "devices": [
            [[index[name] for name in block] for block in blocks] for blocks in document["placement"]["replicas"]
        ],
    }


def check_placed(problem: dict, document: dict, machine: Machine) -> list[str]:
    """Every number of a placed plan that the oracle has otherwise, and every rule that the plan breaks."""
    plan = placed_plan(document, machine)
    numbers = price(problem, plan, machine)
    expected = {key: numbers[key] for key in ("batch_time", "micro_batches", "fits")}
    wrong = differences("", document, expected | {"fits": True})
    for i, (stage, priced) in enumerate(zip(document["stages"], numbers["stages"], strict=True)):
        wrong += differences(f"stages[{i}].", stage, priced)
    return wrong + [f"the plan breaks a rule: {rule}" for rule in violations(problem, plan, machine)]


def answers_of(problem: dict) -> tuple[Machine, Answer]:
    """The oracle's network, and its answer."""
    search = Search(problem, FITS)
    return search.machine, search.run()


def network_disagreements(problem: dict, answer: Answer, machine: Machine, document: dict) -> list[str]:
    """What a plan document says of this problem and the oracle does not; empty when they agree."""
    if (document["status"] == "infeasible") != (answer.plan is None):
        return [f"status is {document['status']}, the oracle finds {answer.batch_time!r}"]
    if answer.plan is None:
        wrong = check_infeasible(document)
        if not wrong and answer.reachable_memory is not None:
            wrong += check_diagnosis(document, answer)
        return wrong
    if document["placement"] is None:
        return ["the plan has no placement, as if the network were a hierarchy"]
    wrong = check_placed(problem, document, machine)
    found, bound, least = document["batch_time"], document["lower_bound"], answer.batch_time
    if document["status"] == "optimal":
        wrong += differences("", document, {"lower_bound": found})
        if not same(found, least, PROVED):
            wrong.append(f"batch_time {found!r} is said to be optimal, the oracle finds {least!r}")
    else:
        wrong += differences("", document, {"status": "feasible"})
    if not bound <= least * (1 + PROVED):
        wrong.append(f"lower_bound is {bound!r}, the oracle finds {least!r}")
    if not least <= found * (1 + 1e-9):
        wrong.append(f"batch_time {found!r} is less than the oracle's {least!r}")
    return wrong


def examine(problem: dict) -> tuple[dict, Answer, list[str]]:
    """The planner's document, the oracle's answer and their disagreements; an exception is one."""
    machine, answer = answers_of(problem)
    nest = planner()
    try:
        document = as_json(nest.solve(problem).to_dict())
        wrong = network_disagreements(problem, answer, machine, document)
        report = nest.check(document)
    except Exception as error:
        return {"status": "an exception"}, answer, [f"{type(error).__name__}: {error}"]
    return document, answer, wrong if report.ok else [*wrong, f"nest check refuses the plan: {report}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="networks to compare")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first; the others follow it")
    parser.add_argument("--output", type=Path, help="a folder for the problems they disagree about")
    parser.add_argument("--kind", choices=KINDS, default="plain", help="problems of this kind")
    arguments = parser.parse_args()
    start, counts = perf_counter(), Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        problem = draw_network(seed, arguments.kind)
        document, answer, wrong = examine(problem)
        counts[document["status"]] += 1
        if document["status"] == "feasible" and same(document["batch_time"], answer.batch_time, PROVED):
            counts["feasible, and the optimum"] += 1
        if wrong:
            counts["disagree"] += 1
            print(complaint(f"seed {seed}", problem, wrong), flush=True)
            if arguments.output is not None:
                arguments.output.mkdir(parents=True, exist_ok=True)
                found = {"seed": seed, "wrong": wrong, "problem": problem, "oracle": vars(answer), "plan": document}
                (arguments.output / f"{arguments.kind}-{seed}.json").write_text(json.dumps(found, indent=1) + "\n")
    for name in sorted(counts):
        print(f"{counts[name]:8} {name}")
    print(
        f"{arguments.count} networks from seed {arguments.seed}: {arguments.count - counts['disagree']} agree, "
        f"{counts['disagree']} disagree; {perf_counter() - start:.1f} s"
    )
    return 1 if counts["disagree"] else 0


if __name__ == "__main__":
    sys.exit(main())
