"""What planners are given and what they answer (`nest_planners`)."""

from collections.abc import Callable, Sequence
from numbers import Integral

from attrs import frozen

from nest.hooks.guard import Nonsense
from nest.instance import Instance, Level, Result, Solution, StageDecision
from nest.plan import PricedPlan, evaluate
from nest.plan.legality import permission_violations, structure_violations
from nest.tolerances import CONTENDING_MEMORY_SLACK


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
    def refutes(self) -> bool:
        """Whether they fit so closely that, if they are faster, no plan was the best that a search found."""
        return self.priced is not None and not any(self.priced.exceeding(CONTENDING_MEMORY_SLACK))

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


def assessed(instance: Instance, solution: Solution) -> Assessment:
    """What decisions come to."""
    faults = structure_violations(instance, solution) or permission_violations(instance, solution)
    return Assessment(tuple(faults), None if faults else evaluate(instance, solution))


def sound_proposal(found: object, instance: Instance) -> Proposal:
    """`found`, its numbers plain ones, which names only what `instance` has; whether it is a plan is another question.

    Raises:
        Nonsense: it does not.
    """
    if not isinstance(found, Proposal):
        raise Nonsense(f"{type(found).__name__} is no Proposal")
    remarks, solution = found.remarks, found.solution
    if not _listed(remarks) or not all(isinstance(each, str) for each in remarks):
        raise Nonsense("the remarks are no sequence of sentences")
    if solution is None:
        return Proposal(None, tuple(remarks))
    if not isinstance(solution, Solution):
        raise Nonsense("the solution is no Solution")
    if not _listed(solution.stages) or not solution.stages:
        raise Nonsense("the stages are no sequence of one or more")
    degree = solution.zero_degree
    decided = Solution(
        _whole(solution.replicas, 1, "replicas"),
        solution.rank_order,
        solution.schedule,
        tuple(_sound_stage(stage, instance) for stage in solution.stages),
        _whole(solution.chunks, 1, "chunks"),
        None if degree is None else _whole(degree, 1, "zero_degree"),
    )
    return Proposal(decided, tuple(remarks))


def _listed(found: object) -> bool:
    return isinstance(found, Sequence) and not isinstance(found, (str, bytes))


def _is_whole(number: object) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool)


def _whole(number: int, least: int, what: str) -> int:
    if not _is_whole(number) or number < least:
        raise Nonsense(f"{what} is {number!r}, no whole number from {least} on")
    return int(number)


def _sound_stage(stage: StageDecision, instance: Instance) -> StageDecision:
    if not isinstance(stage, StageDecision):
        raise Nonsense(f"{type(stage).__name__} is no StageDecision")
    layers, candidates = len(instance.graph.layers), len(instance.candidates)
    if not _listed(stage.layers) or not all(_is_whole(layer) and 0 <= layer < layers for layer in stage.layers):
        raise Nonsense(f"a stage has no sequence of layers out of the {layers} there are")
    if not _is_whole(stage.candidate) or not 0 <= stage.candidate < candidates:
        raise Nonsense(f"a stage names candidate {stage.candidate!r}, and there are {candidates}")
    if stage.recompute not in [mode.name for mode in instance.candidates[stage.candidate].recompute]:
        raise Nonsense(f"a stage names the recompute mode {stage.recompute!r}, which its candidate lacks")
    if not _is_whole(stage.zero) or not 0 <= stage.zero <= 3:
        raise Nonsense(f"a stage has ZeRO stage {stage.zero!r}, which is none from 0 to 3")
    return StageDecision(
        tuple(sorted(int(layer) for layer in stage.layers)),
        int(stage.candidate),
        stage.recompute,
        int(stage.zero),
        _whole(stage.offset, 0, "the offset of a stage"),
    )
