"""One random problem on a network: the optimum, and what plans found in other ways take on the network itself."""

import json
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

from attrs import frozen

import nest
from nest.errors import InputError
from nest.hooks.placements import network_of
from nest.instance.pairs import Pairs
from nest.io import structure
from nest.network import LinkGraph, Reduced, reduce
from nest.spec import ClusterSpec
from tests.agreement.networks import placed_plan
from tests.agreement.random_networks import random_network_problem
from tests.oracle.network_plans import Search
from tests.oracle.network_price import price

EARLIER = """
import json, sys, nest
from nest.hooks.placements import network_of
from nest.io import structure
from nest.network import LinkGraph, pairs, reduce
from nest.spec import ClusterSpec
for line in sys.stdin:
    problem = json.loads(line)
    network = network_of(structure(problem["cluster"], ClusterSpec))
    names = reduce(pairs(network) if isinstance(network, LinkGraph) else network).names
    try:
        plan = nest.solve(problem).to_dict()
    except nest.errors.InputError:
        plan = None
    print(json.dumps([plan, names]), flush=True)
"""
"""What a process of another checkout runs: a problem a line, and a plan and the devices along its levels a line."""


@frozen
class Losses:
    """How much longer plans take on a network than the best plan with the best placement: a share of its time.

    Attributes:
        kind: of the network.
        levels: the best plan on levels, where these place it; None: no candidate fits the levels. Of the other checkout
            where there is one, else of this nest on the levels that it reduces the network to.
        moved: the plan of the other checkout with its blocks as that places them; None: it has none, or nobody asked.
        here: the plan of this nest.
        proved: whether this nest proves its own.
    """

    kind: str
    levels: float | None
    moved: float | None
    here: float
    proved: bool


class OtherCheckout:
    """The `nest.solve` of another checkout of this repository, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", EARLIER], cwd=folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def solve(self, problem: dict[str, Any]) -> tuple[dict[str, Any] | None, list[str]]:
        """The plan's document, None where the problem is refused, and the names of the devices along the levels.

        Raises:
            ChildProcessError: the process ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(problem) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ChildProcessError("the other checkout's nest ended; what it wrote is above.")
        plan, names = json.loads(line)
        return plan, names

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measured(seed: int, kind: str, other: OtherCheckout | None) -> Losses | None:
    """The losses on the problem of a seed; None where it has no plan."""
    problem = random_network_problem(Random(f"{kind} {seed}"), kind)
    search = Search(problem)
    least = search.run().batch_time
    if least is None:
        return None
    here = nest.solve(problem).to_dict()
    levels, names = on_levels(problem) if other is None else other.solve(problem)
    moved = None if other is None else levels

    def loss(document: dict[str, Any] | None) -> float | None:
        if document is None or document["status"] == "infeasible":
            return None
        placed = price(problem, placed_plan({**document, "problem": problem}, search.machine), search.machine)
        return float(placed["batch_time"]) / least - 1

    lost = loss(here)
    assert lost is not None
    by_levels = loss(placed_by_levels(levels, names))
    return Losses(kind, by_levels, loss(moved), lost, here["status"] == "optimal")


def on_levels(problem: dict[str, Any]) -> tuple[dict[str, Any] | None, list[str]]:
    """The best plan on the levels of `nest topology show`, and the devices along them.

    None where no candidate is as wide as the levels allow.
    """
    levels = reduced(problem)
    flat = deepcopy(problem)
    del flat["cluster"]["topology"]
    flat["cluster"]["levels"] = [
        {"fanout": each.fanout, "bandwidth": each.bandwidth, "latency": each.latency} for each in levels.best.levels
    ]
    try:
        return nest.solve(flat).to_dict(), list(levels.names)
    except InputError:
        return None, list(levels.names)


def placed_by_levels(document: dict[str, Any] | None, names: list[str]) -> dict[str, Any] | None:
    """A plan with the places that levels give its blocks (PROBLEM.md section 3); `names` of the devices along them."""
    if document is None or document["status"] == "infeasible":
        return document
    replicas, widest = document["data_parallel"], document["candidate"]["width"]
    size = widest * (len(names) // (replicas * widest))
    blocks = []
    for replica in range(replicas):
        firsts = [
            (first + replica * (size if document["rank_order"] == "pp-inner" else width), width)
            for first, width in (stage["devices"] for stage in document["stages"])
        ]
        blocks.append([names[first : first + width] for first, width in firsts])
    return {**document, "placement": {"replicas": blocks}}


def reduced(problem: dict[str, Any]) -> Reduced:
    """The levels of a problem's network."""
    network = network_of(structure(problem["cluster"], ClusterSpec))
    assert isinstance(network, (LinkGraph, Pairs))
    return reduce(network)
