"""What planners are given and what they answer (`nest_planners`)."""

from collections.abc import Callable, Sequence

from attrs import frozen

from nest.hooks.guard import Nonsense
from nest.instance import Instance, Level, Result, Solution, StageDecision
from nest.plan import PricedPlan


@frozen
class Proposal:
    """What a planner decides.

    Attributes:
        solution: the decisions; None: it finds no plan.
        remarks: what to tell of them, a sentence each; of no plan, why there is none.
    """

    solution: Solution | None
    remarks: tuple[str, ...] = ()


@frozen
class Assessment:
    """What decisions come to on the problem that is planned.

    Attributes:
        faults: why they are no plan of the problem, a sentence each; none: they are one, which may yet not fit.
        priced: every number of the plan; None: it is none.
    """

    faults: tuple[str, ...]
    priced: PricedPlan | None

    @property
    def fits(self) -> bool:
        """Whether they are a plan of the problem that fits into memory."""
        return self.priced is not None and self.priced.fits

    @property
    def missing(self) -> float:
        """Bytes that its fullest stage needs beyond those of a device; 0 where it fits or is no plan."""
        if self.priced is None or self.priced.fits:
            return 0.0
        return max(stage.memory for stage in self.priced.stages) - self.priced.capacity


@frozen
class PlannerContext:
    """What a planner may use beside the instance.

    Attributes:
        seed: of random numbers; planners that draw none do not look at it.
        evaluations: plans that a planner which tries plans out may price.
        assess: what decisions come to on the instance; plans are priced by `nest.plan.evaluate`.
        search: the exact dynamic program, for any instance: its result may be that of another problem.
        on_network: the instance with another network, level by level as many devices in all: what depends on the
            network is priced anew, and candidates keep their places.
    """

    seed: int
    evaluations: int
    assess: Callable[[Solution], Assessment]
    search: Callable[[Instance], Result]
    on_network: Callable[[Sequence[Level]], Instance]


def sound_proposal(found: object, instance: Instance) -> Proposal:
    """`found`, which names only what `instance` has; whether it is a plan is another question.

    Raises:
        Nonsense: it does not.
    """
    if not isinstance(found, Proposal):
        raise Nonsense(f"{type(found).__name__} is no Proposal")
    if not all(isinstance(each, str) for each in found.remarks):
        raise Nonsense("the remarks are no sentences")
    solution = found.solution
    if solution is None:
        return found
    if not isinstance(solution, Solution) or not _counts(solution.replicas, solution.chunks) or not solution.stages:
        raise Nonsense("the solution is no Solution of some stages, replicas and chunks")
    if solution.zero_degree is not None and not _counts(solution.zero_degree):
        raise Nonsense("zero_degree is no count of ranks")
    for stage in solution.stages:
        _check_stage(stage, instance)
    return found


def _counts(*numbers: object) -> bool:
    return all(isinstance(number, int) and not isinstance(number, bool) and number >= 1 for number in numbers)


def _check_stage(stage: StageDecision, instance: Instance) -> None:
    if not isinstance(stage, StageDecision):
        raise Nonsense(f"{type(stage).__name__} is no StageDecision")
    layers, candidates = len(instance.graph.layers), len(instance.candidates)
    if not all(isinstance(layer, int) and 0 <= layer < layers for layer in stage.layers):
        raise Nonsense(f"a stage names a layer beyond the {layers} there are")
    if not isinstance(stage.candidate, int) or not 0 <= stage.candidate < candidates:
        raise Nonsense(f"a stage names candidate {stage.candidate!r}, and there are {candidates}")
    if stage.recompute not in [mode.name for mode in instance.candidates[stage.candidate].recompute]:
        raise Nonsense(f"a stage names the recompute mode {stage.recompute!r}, which its candidate lacks")
    if stage.zero not in (0, 1, 2, 3) or not isinstance(stage.offset, int) or stage.offset < 0:
        raise Nonsense("a stage has no ZeRO stage from 0 to 3, or no place")
