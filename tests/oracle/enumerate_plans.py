"""Every explicit plan of a tiny problem, nothing folded together: the oracle's own oracle."""

from itertools import product
from math import comb

from tests.oracle.brute_force import describe
from tests.oracle.network import Network
from tests.oracle.partitions import partitions
from tests.oracle.price import violations
from tests.oracle.settings import settings


def every_plan(problem: dict, limit: int):
    """All plans that keep every rule, memory aside; a single None where there are too many to look at."""
    every = partitions(len(problem["profile"]["layers"]), problem["profile"]["edges"])
    chosen = list(settings(problem, Network(problem["cluster"])))
    looked_at = sum(
        comb(setting.replica_devices // setting.width, len(p)) * (4 * len(setting.candidate["recompute"])) ** len(p)
        for setting in chosen
        for p in every
    )
    if looked_at > limit:
        yield None
        return
    for setting in chosen:
        modes = list(product(setting.candidate["recompute"], range(4)))
        for partition in every:
            for offsets in setting.placements(len(partition)):
                for choice in product(modes, repeat=len(partition)):
                    plan = describe(setting, partition, offsets, choice)
                    if not violations(problem, plan):
                        yield plan
