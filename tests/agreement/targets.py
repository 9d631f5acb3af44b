"""Made-up frameworks: what they can run at random, and problems for the oracle that say the same in their own words."""

from random import Random
from types import ModuleType

from tests.oracle.brute_force import Answer
from tests.oracle.check import same
from tests.oracle.settings import SCHEDULES, given

NAME = "made-up"
CONSTRAINTS = (
    "uniform(recompute)", "uniform(zero)", "pp <= 2", "pp > 1", "tp * pp <= 4", "zero <= 1 or pp == 1",
    "replicas % 2 == 0 or pp == 1", "recompute != 'full' or zero == 0", "devices >= 2",
    'same_stage("layer 0", "layer 1")', 'same_stage("no such layer", "layer 1")',
)  # fmt: skip


def random_limits(random: Random, problem: dict) -> dict:
    """What some framework can run, by the names of `nest.deployment.Limits`."""
    candidates = problem["profile"]["candidates"]
    degrees = sorted({name for each in candidates for name in each["degrees"]})
    modes = sorted({mode for each in candidates for mode in each["recompute"]})
    limits: dict = {
        "mixed": random.random() < 0.5,
        "zero_degrees": random.random() < 0.5,
        "even_stages": random.random() < 0.6,
    }
    if random.random() < 0.3:
        limits["strategies"] = tuple(random.sample(degrees, random.randint(0, len(degrees))))
    if random.random() < 0.4:
        every = [*SCHEDULES, "interleaved", "zero-bubble"]
        limits["schedules"] = tuple(random.sample(every, random.randint(2, len(every))))
    if random.random() < 0.4:
        limits["zero"] = tuple(random.sample(range(4), random.randint(1, 3)))
    if random.random() < 0.4:
        limits["recompute"] = tuple(random.sample([*modes, "nobody's"], random.randint(1, len(modes))))
    if random.random() < 0.4:
        limits["rank_orders"] = (random.choice(["pp-inner", "dp-inner"]),)
    if random.random() < 0.5:
        limits["constraints"] = dict.fromkeys(random.sample(CONSTRAINTS, random.randint(1, 2)), "it is made up")
    return limits


def exporter_of(limits: dict) -> ModuleType:
    """A plug-in with an exporter whose framework can run that."""
    from nest.deployment import Limits
    from nest.hooks import hook

    class MadeUp:
        name = NAME

        def export(self, plan):
            return {"plan.txt": str(plan.batch_time)}

        def limits(self, problem):
            return Limits(**limits)

    made = ModuleType("made_up_exporter")

    @hook
    def nest_exporters():
        return [MadeUp()]

    made.nest_exporters = nest_exporters
    return made


def narrowed(problem: dict, limits: dict) -> dict:
    """The problem without what the framework cannot run; of `fixed`, the oracle knows what no list allows."""
    search, training, fixed = dict(problem.get("search") or {}), dict(problem["training"]), problem.get("fixed") or {}
    profile = problem["profile"]
    modes = {mode: None for each in profile["candidates"] for mode in each["recompute"]}

    def kept(wanted, limited) -> list:
        wanted = [wanted] if isinstance(wanted, (str, int)) else wanted
        return [each for each in wanted if limited is None or each in limited]

    training["schedule"] = kept(given(training, "schedule", "1f1b"), limits.get("schedules"))
    search["zero"] = kept(given(search, "zero", range(4)), limits.get("zero"))
    search["recompute"] = kept(given(search, "recompute", list(modes)), limits.get("recompute"))
    search["rank_order"] = kept(given(search, "rank_order", ["pp-inner", "dp-inner"]), limits.get("rank_orders"))
    search["zero_degree"] = kept(given(search, "zero_degree", "all"), None if limits["zero_degrees"] else ("all",))
    search["mixed"] = given(search, "mixed", False) and limits["mixed"]
    search["even"] = limits["even_stages"]
    if "zero_degree" in fixed and fixed["zero_degree"] != "all" and not limits["zero_degrees"]:
        search["zero"] = []
    strategies = limits.get("strategies")
    candidates = [
        each
        for each in profile["candidates"]
        if all(degree == 1 or strategies is None or name in strategies for name, degree in each["degrees"].items())
    ]
    layers = set(profile["layers"])
    constraints = [
        text
        for text in limits.get("constraints", ())
        if not text.startswith("same_stage") or all(name in layers for name in text.split('"')[1::2])
    ]
    return {
        **problem,
        "training": training,
        "search": search,
        "profile": {**profile, "candidates": candidates},
        "constraints": [*(problem.get("constraints") or []), *constraints],
    }


def target_disagreements(problem: dict, limits: dict, answer: Answer, *, verify: bool = False) -> list[str]:
    """What the planner says of the plans a framework can run and the oracle does not; empty when they agree.

    Args:
        problem: without a target.
        limits: of the framework.
        answer: the oracle's, for the narrowed problem.
        verify: whether CP-SAT has to prove the plan.
    """
    from nest import api
    from nest.deployment import Limits, violations
    from nest.errors import InputError
    from nest.hooks.registry import registry

    known = registry([exporter_of(limits)])
    asked = {**problem, "search": {**(problem.get("search") or {}), "target": NAME}}
    try:
        plan = api.solve(asked, plugins=known, verify=verify)
    except InputError as error:
        return [f"refused, but there is a plan: {error}"] if answer.plan is not None else []
    if answer.plan is None:
        return [] if plan.status == "infeasible" else [f"status is {plan.status}, the oracle finds no plan"]
    wrong = [f"nest check refuses the plan: {each}" for each in api.check(plan, plugins=known).disagreements]
    if plan.status != "optimal" or not same(plan.batch_time, answer.batch_time):
        wrong.append(f"{plan.status} with {plan.batch_time!r}, the oracle finds {answer.batch_time!r}")
    if verify and (plan.verification or {}).get("status") != "proved":
        wrong.append(f"CP-SAT does not prove the plan: {plan.verification}")
    return wrong + [f"the target cannot run it: {each}" for each in violations(plan, Limits(**limits), NAME)]
