"""What a decided plan is made of: the operators of each kind of layer, and how many layers of each a stage has."""

from collections import Counter

from attrs import frozen

from nest.errors import InputError
from nest.formulate.fixed_plan import decide, evaluation
from nest.formulate.instance import Formulation
from nest.formulate.price import Pricing, priced_layers
from nest.formulate.priced import PricedOperator
from nest.formulate.recompute import recompute_modes
from nest.hooks.registry import Registry
from nest.instance import Instance, Solution
from nest.spec import Problem


@frozen
class LedgerLayer:
    """One kind of layer.

    Attributes:
        rows: its operators, priced.
        again: names of those that run again in the plan's recompute mode.
    """

    rows: tuple[PricedOperator, ...]
    again: frozenset[str]


@frozen(eq=False)
class Ledger:
    """A decided plan and what it is made of.

    Attributes:
        problem: whose plan it is.
        instance: of it.
        solution: its decisions.
        pricing: what priced the operators.
        layers: one of each kind.
        stages: for each stage, in pipeline order, how many layers of each kind it has.
    """

    problem: Problem
    instance: Instance
    solution: Solution
    pricing: Pricing
    layers: tuple[LedgerLayer, ...]
    stages: tuple[Counter[int], ...]


def ledger(problem: Problem, known: Registry) -> Ledger:
    """The plan that `problem.fixed` describes, taken apart.

    Raises:
        InputError: the decisions do not make a plan, or the problem has no model to take apart.
    """
    if problem.model is None:
        raise InputError("profile: only runs of a `model` can be calibrated to; a profile states its times.")
    if problem.search.granularity == "operator":
        raise InputError("search.granularity: calibration takes plans of whole layers; leave it out.")
    instance, formulation = evaluation(problem, known)
    if formulation.pricing is not None and len(formulation.pricing.device.engines) > 1:
        raise InputError(
            f"cluster.device: {formulation.pricing.device.name!r} has several engines; only devices with one can be "
            "calibrated."
        )
    return _ledger(problem, instance, formulation, decide(instance, problem, known))


def _ledger(problem: Problem, instance: Instance, formulation: Formulation, solution: Solution) -> Ledger:
    stage = solution.stages[0]
    pricing, kinds = formulation.pricing, formulation.kinds
    assert pricing is not None
    assert kinds is not None
    layers = []
    for priced, repeated in priced_layers(formulation.sharded[stage.candidate], kinds, pricing):
        modes = recompute_modes([row.operator for row in priced.rows], problem.training.selective, repeated)
        if stage.recompute not in modes:
            raise InputError(f"fixed.recompute: runs in the mode {stage.recompute!r} cannot be calibrated to.")
        again = frozenset(operator.name for operator in modes[stage.recompute].again)
        layers.append(LedgerLayer(priced.rows, again))
    stages = tuple(Counter(kinds.kinds[layer] for layer in each.layers) for each in solution.stages)
    return Ledger(problem, instance, solution, pricing, tuple(layers), stages)
