"""The `summary` of a plan: figures that follow from its numbers and its problem."""

from typing import Any

from nest.formulate.facts import model_facts
from nest.formulate.inside_layers import collectives_inside
from nest.formulate.instance import Formulation
from nest.hooks.registry import Registry
from nest.instance import Instance, Solution
from nest.plan import PricedPlan
from nest.report import ModelFacts, figures
from nest.report.plan_summary import whole_training
from nest.spec import Problem


def figures_of(
    instance: Instance,
    solution: Solution,
    priced: PricedPlan,
    problem: Problem,
    known: Registry,
    formulation: Formulation,
) -> dict[str, Any]:
    """The `summary` of a plan.

    Args:
        instance: of its problem.
        solution: its decisions.
        priced: their price.
        problem: self-contained.
        known: registered strategies, importers and the like.
        formulation: what the instance was made of.
    """
    known_facts = model_facts(problem, known)
    facts = ModelFacts(*known_facts) if known_facts is not None else None
    names = [level.name for level in instance.cluster.levels]
    found = {"levels": names, **figures(instance, solution, priced, facts)}
    inside = collectives_inside(formulation, solution, priced)
    whole = whole_training(problem, instance, priced, found["devices_used"])
    told = {"collectives": inside, "training": whole}
    return {**found, **{name: each for name, each in told.items() if each is not None}}
