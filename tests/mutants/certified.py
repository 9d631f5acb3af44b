"""Let the checker of certificates judge answers of searches with planted faults.

`python -m tests.mutants.certified [--count N] [--seed S] [NAME ...]`

Each planted fault of `nest/solve` answers the same random problems. If it loses the optimum, a certificate of its
answer names the strongest rule for every case. The checker must refuse it, without help of the program that proves.
"""

import argparse
import multiprocessing
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any

from tests.agreement.compare import plugins_of, solved
from tests.mutants.faults import faults
from tests.mutants.planting import plant

ROOM = "nest/solve/"
KINDS = ("plain", "chunked", "sharded", "uneven", "schedules")
LOSS = 2e-9
"""Share of the step time by which a claim may exceed the optimum: twice the tolerance of `optimal`."""
LONGEST = 60
"""Seconds after which a search counts as hung."""
STRONGEST = {"rule": "replay"}
"""Tree of cases that lets the checker try every rule on each."""


Drawn = tuple[str, dict[str, Any], float | None]
"""Name of a problem, the problem, and its optimum."""


def drawn(seeds: range) -> Iterator[Drawn]:
    """Random problems whose answer no rounding of memory changes; every third has stages that recompute in part."""
    from tests.agreement.draws import draw, hangs_on_rounding  # Imports nest.

    for seed in seeds:
        kind = KINDS[seed % len(KINDS)]
        found = draw(seed, kind, parts=seed % 3 == 0 and kind != "schedules")
        if not hangs_on_rounding(found):
            yield f"seed {seed}, {kind}", found.problem, found.answer.batch_time


def judged(problem: dict[str, Any], least: float | None) -> tuple[str, str]:
    """Verdict on the planner's answer to a problem with an optimum, and what the checker says."""
    from nest.errors import NestError
    from nest.hooks.registry import registry
    from nest.public.planning import solution_of
    from nest_certificate.numbers import decisions_of
    from nest_certificate.rules import Refused, check
    from nest_certificate.verbs import formulated

    try:
        plan = solved(problem)
    except TimeoutError:
        raise
    except Exception as error:
        return "stopped", type(error).__name__
    if plan.batch_time is None:
        return ("no plan" if least is not None else "right"), ""
    bound = (least or float("inf")) * (1 + LOSS)
    if least is not None and plan.batch_time <= bound and plan.lower_bound <= bound:
        return "right", ""
    if least is not None and plan.lower_bound <= bound:
        return "open", ""
    try:
        instance, numbers, _ = formulated(plan, plugins_of(problem).get("plugins") or registry(strict=False))
        certificate = {
            "lower_bound": plan.lower_bound * (1 - LOSS / 2),
            "price": plan.batch_time,
            "plan": decisions_of(instance, solution_of(instance, plan)),
            "instance": numbers.data,
            "cases": STRONGEST,
        }
    except (NestError, Refused) as error:
        return "lost, not covered", str(error)
    try:
        claim, _ = check(certificate)
    except Refused as refused:
        return "lost, refused", str(refused)
    return "lost, ACCEPTED", f"{claim} is claimed, the optimum is {least}"


def hang(number: int, frame: FrameType | None) -> None:
    """End a search that hangs."""
    raise TimeoutError


def examine(name: str, draws: list[Drawn]) -> tuple[str, Counter[str], list[str]]:
    """Count verdicts on the answers that a planted fault gives; list what the checker accepts."""
    plant(name)
    from tests.agreement.drawn_schedules import counts_of_no_order

    signal.signal(signal.SIGALRM, hang)
    counts, wrong = Counter[str](), []
    for title, problem, least in draws:
        signal.alarm(LONGEST)
        try:
            with counts_of_no_order():
                verdict, said = judged(problem, least)
        except TimeoutError:
            verdict, said = "hung", ""
        finally:
            signal.alarm(0)
        counts[verdict] += 1
        if "ACCEPTED" in verdict:
            wrong.append(f"{name}, {title}: {said}")
    return name, counts, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="problems that each fault answers")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first; the others follow it")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("names", nargs="*", help="faults; default: all of nest/solve")
    arguments = parser.parse_args()
    names = arguments.names or [fault.name for fault in faults() if fault.file.startswith(ROOM)]
    draws = list(drawn(range(arguments.seed, arguments.seed + arguments.count)))
    counts: Counter[str] = Counter()
    # A process for each fault: it is planted before anything of nest is imported.
    with multiprocessing.get_context("spawn").Pool(arguments.jobs, maxtasksperchild=1) as pool:
        for name, verdicts, wrong in pool.imap(partial(examine, draws=draws), names, chunksize=1):
            counts += verdicts
            counts["faults"] += 1
            counts["faults that lose an optimum"] += any("lost" in verdict for verdict in verdicts)
            print(name, *(f"{number} {verdict}" for verdict, number in sorted(verdicts.items())), sep=", ", flush=True)
            print(*wrong, sep="\n", end="\n" if wrong else "", flush=True)
    for verdict in sorted(counts):
        print(f"{counts[verdict]:8} {verdict}")
    return 1 if counts["lost, ACCEPTED"] else 0


if __name__ == "__main__":
    sys.exit(main())
