"""Every explicit plan of a tiny problem, nothing folded together: the oracle's own oracle."""

from itertools import product
from math import prod

from tests.oracle.brute_force import Split, alone, describe, split_of
from tests.oracle.chunks import splits
from tests.oracle.network import Network
from tests.oracle.partitions import partitions
from tests.oracle.parts import choices
from tests.oracle.price import price, violations
from tests.oracle.settings import given, settings


def outlines(problem: dict):
    """Settings, splits and candidates of the stages, with every placement and the modes of each stage."""
    every = partitions(len(problem["profile"]["layers"]), problem["profile"]["edges"])
    plain = [alone(partition) for partition in every]
    zeros = given(problem.get("search"), "zero", range(4))
    for setting in settings(problem, Network(problem["cluster"])):
        for split in plain if setting.chunks == 1 else chunked(problem, setting):
            for chosen in product(setting.candidates, repeat=len(split.stages)):
                placements = setting.placements([candidate["width"] for candidate in chosen])
                modes = [list(product(choices(problem, candidate), zeros)) for candidate in chosen]
                yield setting, split, chosen, placements, modes


def chunked(problem: dict, setting) -> list[Split]:
    """Every split into stages of several chunks."""
    return [split_of(*each) for each in splits(problem, setting.pipeline, setting.micro_batches)]


def few_plans(problem: dict, limit: int) -> bool:
    """Whether no more plans than this have to be looked at."""
    looked_at = 0
    for _, _, _, placements, modes in outlines(problem):
        for _ in placements:
            looked_at += prod(map(len, modes))
            if looked_at > limit:
                return False
    return True


def every_plan(problem: dict, limit: int):
    """All plans that keep every rule, memory aside; a single None where there are too many to look at."""
    if not few_plans(problem, limit):
        yield None
        return
    for setting, split, chosen, placements, modes in outlines(problem):
        for offsets in placements:
            for choice in product(*modes):
                plan = describe(setting, split, chosen, offsets, choice)
                if not violations(problem, plan):
                    yield plan


def best_time(problem: dict, limit: int) -> float | None:
    """The least step time of all plans that fit; None: there is none.

    Raises:
        OverflowError: there are more plans than `limit`.
    """
    times = []
    for plan in every_plan(problem, limit):
        if plan is None:
            raise OverflowError("too many plans to try")
        numbers = price(problem, plan)
        if numbers["fits"]:
            times.append(numbers["batch_time"])
    return min(times, default=None)
