"""NVIDIA's rules of thumb by model size, as its guides for Megatron Bridge print them."""

from collections.abc import Iterator
from math import inf

from attrs import frozen

from nest.hooks.planning import PlannerContext, Proposal
from nest.instance import Candidate, Instance, Solution
from nest_planners.shapes import Choices, even_cuts, modes, partition, requested_counts, units
from nest_planners.tables import plain_schedules
from nest_planners.views import fastest_of, usual_order

BYTES_PER_PARAMETER = 2
"""Of 16-bit weights, by which the instance, which knows bytes only, says how large a model is."""

ZERO = 1
"""The distributed optimizer, which every recipe of the guide turns on."""


@frozen
class Rule:
    """Recommendation up to a size.

    Attributes:
        most: parameters.
        tp: tensor-parallel degrees.
        pp: numbers of stages.
        ep: expert-parallel degrees, from the first to the last; none: the model has no experts.
    """

    most: float
    tp: tuple[int, ...]
    pp: tuple[int, ...]
    ep: tuple[int, ...] = ()


DENSE = (
    Rule(1e9, (1,), (1,)),
    Rule(10e9, (2, 4), (1,)),
    Rule(70e9, (4, 8), (2, 4)),
    Rule(175e9, (8,), (4, 8)),
    Rule(inf, (8,), (8, 16)),
)
"""NVIDIA-NeMo/Megatron-Bridge, docs/parallelisms.md (commit 0026ec1), "Dense Models by Size". It also has a context
parallelism of 2 above 175B, which is left to the problem: sequences differ."""

EXPERTS = (
    Rule(20e9, (1,), (1,), (1, 2, 4, 8, 16, 32, 64)),
    Rule(100e9, (1, 2), (2, 4), (8, 16)),
    Rule(500e9, (2, 4), (8, 16), (8, 16, 32)),
    Rule(inf, (2,), (16,), (32, 64)),
)
"""The same, "MoE Models", by all parameters."""

NEAR = 1.05
"""A model is of the class whose limit it exceeds by no more: 70B models have up to 71 billion parameters."""


class Recipe:
    """The degrees that the guide names for a model's size: the fastest that fits.

    Where none fits, recomputation is added, then more stages. Transformer blocks are divided evenly, all other devices
    are replicas, and the optimizer is sharded.
    """

    name = "recipe"
    summary = "NVIDIA's recommended degrees by model size, with the optimizer sharded"

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The fastest of the recommended plans that fit."""
        closest: tuple[float, Solution] | None = None
        for solutions in _widening(instance):
            found = fastest_of(context, solutions)
            if found is not None:
                return Proposal(found[0])
            for solution in solutions:
                seen = context.assess(solution)
                if seen.priced is not None and (closest is None or seen.missing < closest[0]):
                    closest = seen.missing, solution
        if closest is None:
            return Proposal(None, ("no plan of the recipe is one of the problem.",))
        return Proposal(closest[1], ("no plan of the recipe fits into memory; this is the closest.",))


def parameters(instance: Instance) -> float:
    """Parameters of the model, by the bytes of a whole copy of its weights."""

    def whole(candidate: Candidate) -> float:
        # What several ranks hold alike counts once.
        return sum(float(group.weights.sum()) * candidate.width / len(group.ranks) for group in candidate.state)

    return min(whole(each) for each in instance.candidates) / BYTES_PER_PARAMETER


def _widening(instance: Instance) -> Iterator[list[Solution]]:
    """The recipe's plans; then with recomputation, the cheapest first; then with more stages than it names."""
    indices = requested_counts(instance)
    experts = any(instance.candidates[index].degrees.get("ep", 1) > 1 for index in indices)
    size = parameters(instance)
    rule = next(each for each in (EXPERTS if experts else DENSE) if size <= each.most * NEAR)
    usual = _degrees(instance, indices, rule)
    savings = max(len(modes(instance, instance.candidates[index])) for index in indices)
    count = len(units(instance))
    more = tuple(stages for stages in range(rule.pp[-1] + 1, count + 1) if instance.cluster.size % stages == 0)
    for stages in (rule.pp, more):
        for saving in range(savings):
            yield [
                solution
                for index in usual
                for number in stages
                if number <= count and (solution := _solution(instance, index, number, saving)) is not None
            ]


def _degrees(instance: Instance, indices: tuple[int, ...], rule: Rule) -> list[int]:
    """Candidates with the rule's degrees, or those nearest to them."""

    def off(index: int) -> tuple[int, ...]:
        degrees = instance.candidates[index].degrees
        return tuple(
            min((abs(degrees.get(name, 1) - degree) for degree in wanted), default=0)
            for name, wanted in (("tp", rule.tp), ("ep", rule.ep))
        )

    def preferred(index: int) -> tuple[int, ...]:
        degrees = instance.candidates[index].degrees
        tp = degrees.get("tp", 1)
        # What a recipe does not name is left alone, but for sequence parallelism, which goes with tensor parallelism.
        others = [value for name, value in degrees.items() if name not in ("tp", "sp", "ep")]
        return (-sum(each > 1 for each in others), degrees.get("sp", 1) == tp)

    nearest = min(off(index) for index in indices)
    close = [index for index in indices if off(index) == nearest]
    best = max(preferred(index) for index in close)
    return [index for index in close if preferred(index) == best]


def _solution(instance: Instance, index: int, stages: int, saving: int) -> Solution | None:
    candidate, space = instance.candidates[index], instance.space
    replicas = instance.cluster.size // (candidate.width * stages)
    allowed = modes(instance, candidate)
    while replicas and instance.micro_batches(candidate, replicas) is None:
        replicas -= 1
    if not replicas or saving >= len(allowed):
        return None
    zero = ZERO if ZERO in space.zero else min(space.zero)
    choices = Choices(
        index,
        replicas,
        usual_order(instance),
        plain_schedules(instance)[0],
        allowed[saving],
        zero,
        space.zero_degrees[0],
    )
    pieces = units(instance)
    return choices.solution(instance, partition(pieces, even_cuts(len(pieces), stages)))
