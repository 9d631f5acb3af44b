"""The oracle's replay against `nest.simulate`: plans drawn at random, of every schedule that says its order."""

from collections import Counter
from random import Random

import pytest

from tests.agreement.compare import complaint
from tests.agreement.ports import occupy
from tests.agreement.problems import random_plan, random_problem
from tests.agreement.random_schedules import random_schedule_problem
from tests.agreement.test_schedules import decided
from tests.oracle.check import same
from tests.oracle.price import price, setting_of
from tests.oracle.schedules import TABLE
from tests.seeds import blocks, seeds

KINDS = ("plain", "mixed", "chunked", "schedules")


def drawn(seed: int, kind: str) -> tuple[Random, dict]:
    """A problem of schedules that say their order, in which anything may be priced by replay."""
    random = Random(f"{kind} {seed}")
    problem = random_schedule_problem(random) if kind == "schedules" else random_problem(random, kind)
    problem["training"]["price"] = "replay"
    if random.random() < 0.3:
        occupy(random, problem)
    if random.random() < 0.5:
        problem["training"]["overlap"] = problem["training"].get("overlap", {}) | {"pipeline": True}
    if random.random() < 0.5:
        problem["training"]["schedule"] = random.choice(sorted(TABLE))
    problem.pop("fixed", None)
    return random, problem


def replayed(problem: dict, plan: dict) -> float:
    """Seconds from the first pass to the end of the last, as `nest.simulate` runs them, synchronisation aside."""
    from nest.simulate.replay import replay

    asked = {**problem, "training": {key: value for key, value in problem["training"].items() if key != "price"}}
    spans = replay(*decided(asked, plan)).timeline.spans
    found = []
    for stage in range(len(plan["stages"])):
        own = [span for span in spans if span.stage == stage]
        begun = min(span.start for span in own) if TABLE[plan["schedule"]].staggered else 0.0
        found.append(max(span.end for span in own) - begun)
    return max(found)


def runs(problem: dict, plan: dict | None) -> bool:
    """Whether there is a plan and its schedule says in which order it runs."""
    if plan is None or plan["schedule"] not in TABLE:
        return False
    setting = setting_of(problem, plan)
    return setting.pipeline.admits(len(plan["stages"]), setting.micro_batches)


def compared(seed: int, kind: str) -> Counter[str]:
    """Compare some plans of a problem; of which schedules they are."""
    random, problem = drawn(seed, kind)
    seen: Counter[str] = Counter()
    for plan in (random_plan(random, problem, 2) for _ in range(4)):
        if not runs(problem, plan):
            continue
        seen[plan["schedule"]] += 1
        found, told = price(problem, plan)["makespan"], replayed(problem, plan)
        wrong = [] if same(found, told) else [f"the oracle's makespan is {found!r}, the replay's {told!r}"]
        assert not wrong, complaint(f"{kind} seed {seed}: {plan}", problem, wrong)
    return seen


@pytest.mark.longer
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds(16, 16))
def test_the_replay_takes_as_long_as_the_oracle_says(seed, kind):
    compared(seed, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", blocks(1000, 1500))
def test_many_replays_take_as_long_as_the_oracle_says(block, kind):
    for seed in block:
        compared(seed, kind)
