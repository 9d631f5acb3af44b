"""One random problem a seed, of every kind, with what the oracle says of it."""

from dataclasses import dataclass
from random import Random

from tests.agreement.corners import push, settle
from tests.agreement.ports import occupy
from tests.agreement.problems import random_problem
from tests.agreement.random_parts import recompute_parts
from tests.agreement.random_pools import random_pool_problem
from tests.agreement.random_schedules import random_mixed_schedule_problem, random_schedule_problem
from tests.agreement.targets import narrowed, random_limits
from tests.agreement.uneven import random_uneven_problem
from tests.oracle.brute_force import FITS, Answer, solve
from tests.oracle.check import same
from tests.oracle.pools import has_pools
from tests.oracle.pools import solve as solve_on_pools

SHARES = {
    "schedules": 16,
    "mixed schedules": 4,
    "plain": 28,
    "mixed": 10,
    "chunked": 8,
    "uneven": 14,
    "sharded": 8,
    "sharded mixed": 3,
    "target": 9,
}
"""Kinds of problems and how many in a hundred are of each."""
APART = ("pools",)
"""Kinds that are drawn only where they are named."""
PORTS = 0.25
"""Of all draws, this share has busy ports besides."""
REPLAYS = 0.4
"""Of all draws, in this share all schedules are priced by replays, not only those that always are."""
ROUNDING = (1 + 1e-14, 1 + 1.1e-12)
"""Every program must find that what takes up to so much of the capacity fits; and that what takes more does not."""


@dataclass(frozen=True)
class Draw:
    """A problem, what a made-up framework can run of it (None: no framework is asked for), and the oracle's answer."""

    seed: int
    kind: str
    corners: tuple[str, ...]
    problem: dict
    limits: dict | None
    answer: Answer


def draw(seed: int, kind: str | None = None, *, corner: str | None = None, parts: bool = False) -> Draw:
    """The problem of a seed; of a kind and in a corner, where they are named; with stages that recompute `parts`."""
    random = Random(seed)
    drawn = random.choices(list(SHARES), list(SHARES.values()))[0]
    kind = kind or drawn
    if kind in APART:
        problem = random_pool_problem(random)
        if parts:
            recompute_parts(Random(f"parts of {seed}"), problem)
        ask_for_replays(seed, problem)
        return Draw(seed, kind, (), problem, None, answer_of(problem, None))
    problem = random_of_kind(random, kind)
    if kind not in ("uneven", "schedules") and len(problem["profile"]["layers"]) > 1 and random.random() < 0.3:
        problem["constraints"] = [*problem.get("constraints", []), "pp > 1"]
    cornered = random.random() < {"uneven": 0.2, "schedules": 0.15}.get(kind, 0.5)
    corners = push(random, problem, corner) if cornered or corner is not None else ()
    # Of their own numbers, so that the others stay what they are.
    further = Random(f"ports of {seed}")
    if further.random() < PORTS and "ports" not in corners and kind != "schedules":
        occupy(further, problem)
        corners = (*corners, "ports")
    if parts:
        recompute_parts(Random(f"parts of {seed}"), problem)
    ask_for_replays(seed, problem)
    limits = random_limits(random, problem) if kind == "target" else None
    answer = answer_of(problem, limits)
    for _ in range(3 if kind == "target" else 0):
        if answer.plan is None and random.random() < 0.9:  # Most frameworks drawn can run nothing of the problem.
            limits = random_limits(random, problem)
            answer = answer_of(problem, limits)
    if settle(random, problem, answer):
        answer = answer_of(problem, limits)
    return Draw(seed, kind, corners, problem, limits, answer)


def ask_for_replays(seed: int, problem: dict) -> None:
    """Let some problems have every schedule priced by its replay; of their own numbers, too."""
    if Random(f"price of {seed}").random() < REPLAYS:
        problem["training"]["price"] = "replay"


def random_of_kind(random: Random, kind: str) -> dict:
    if kind == "schedules":
        return random_schedule_problem(random)
    if kind == "mixed schedules":
        return random_mixed_schedule_problem(random)
    if kind == "uneven":
        return random_uneven_problem(random)
    if kind == "target":
        kind = random.choice(["plain", "plain", "mixed", "chunked"])
    sharded = kind.startswith("sharded")
    return random_problem(random, {"sharded": "plain", "sharded mixed": "mixed"}.get(kind, kind), sharded=sharded)


def answer_of(problem: dict, limits: dict | None, fits: float = FITS) -> Answer:
    """What the oracle says of a problem, of the plans alone that a framework can run."""
    if has_pools(problem):
        return solve_on_pools(problem, fits)
    asked = problem if limits is None else narrowed(problem, limits)
    return solve(asked, fits) if asked["profile"]["candidates"] else Answer(None, None, None)


def hangs_on_rounding(drawn: Draw) -> bool:
    """Whether the answer is another if memory may exceed the capacity by nothing, or by all that rounding may make.

    Between the two, programs need not agree on what fits (docs/explanation/numbers.md).
    """
    least, most = (answer_of(drawn.problem, drawn.limits, fits).batch_time for fits in ROUNDING)
    return not same(least, most)
