"""Random problems whose candidates say how busy ports are, and plans of them."""

from copy import deepcopy
from random import Random

from tests.agreement.corners import push
from tests.agreement.ports import occupy
from tests.agreement.problems import random_plan, random_problem
from tests.made_up_collectives import Trees, with_models
from tests.oracle.costs import can_run
from tests.oracle.price import candidates_of

KINDS = ("plain", "mixed", "chunked", "sharded", "sharded mixed")


def with_ports(seed: int, kind: str) -> tuple[Random, dict]:
    """A random problem whose candidates say how busy ports are, sometimes in a further corner."""
    random = Random(f"{kind} {seed}")
    plain = {"sharded": "plain", "sharded mixed": "mixed"}.get(kind, kind)
    problem = random_problem(random, plain, sharded=plain != kind)
    if seed % 4 == 0:
        push(random, problem, "ports")
    else:
        occupy(random, problem)
    if kind == "chunked" and random.random() < 0.7:
        problem["training"]["schedule"] = ["interleaved"]
    if random.random() < 0.2:
        problem["collectives"] = "trees"
    return random, problem


def without_ports(problem: dict) -> dict:
    bare = deepcopy(problem)
    for candidate in bare["profile"]["candidates"]:
        for record in (candidate, *candidate["recompute"].values()):
            record.pop("busy", None)
    return bare


def runnable_plans(random: Random, problem: dict) -> list[dict]:
    """Some random plans, of two stages and more where there is room, whose layers can all run in their modes."""
    drawn = [plan for plan in (random_plan(random, problem, 2) for _ in range(4)) if plan is not None]
    return [
        plan
        for plan in drawn
        if all(
            can_run(candidate, stage["layers"], stage["recompute"])
            for stage, candidate in zip(plan["stages"], candidates_of(problem, plan), strict=True)
        )
    ]


def decided(problem: dict, plan: dict):
    """The instance and the solution that the planner makes of a plan, whatever rules it breaks."""
    from nest.formulate.instance import build_instance
    from nest.formulate.problem import whole_problem
    from nest.instance import Solution, StageDecision

    known = with_models(Trees())
    asked = {key: value for key, value in problem.items() if key not in ("constraints", "fixed")}
    instance = build_instance(whole_problem(asked, known)[0], known)
    index = {candidate.name: number for number, candidate in enumerate(instance.candidates)}
    stages = tuple(
        StageDecision(
            tuple(s["layers"]),
            index[s["candidate"]],
            s["recompute"],
            s["zero"],
            s["offset"],
            tuple(tuple(chunk) for chunk in s["chunks"] or ()),
        )
        for s in plan["stages"]
    )
    shared = (plan["replicas"], plan["rank_order"], plan["schedule"])
    return instance, Solution(*shared, stages, chunks=plan["chunks"], zero_degree=plan["zero_degree"])
