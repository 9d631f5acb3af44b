"""The space of plans that a problem allows, and what it was made of."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from nest.catalogue import unknown_name
from nest.deployment import Limits
from nest.errors import InputError, InputErrors, InternalError
from nest.formulate.constraints import (
    Value,
    allowed_rank_orders,
    allowed_schedules,
    allowed_zero,
    allowed_zero_degrees,
    check_modes,
    demands,
    profile_modes,
    strategy_names,
)
from nest.formulate.partition import check_even, check_together, partition, unknown_layer
from nest.formulate.stack import data_parallel_exposure
from nest.formulate.target import beyond
from nest.graph import Block
from nest.hooks.guarded import blame
from nest.hooks.registry import Registry
from nest.instance import (
    Candidate,
    ChunkedSchedule,
    LayerGraph,
    Schedule,
    Space,
    chunks_of,
)
from nest.spec import DeviceSpec, Problem
from nest.spec.constraints import PLAN_NAMES, STAGE_NAMES, Constraint, parse
from nest.spec.problem import OFFLOAD

if TYPE_CHECKING:
    from nest.formulate.layer_classes import LayerClasses
    from nest.formulate.price import Pricing


@frozen
class Formulation:
    """Layers and candidates of a problem, and what constraints may ask of the model.

    Attributes:
        graph: the layers.
        candidates: what may be planned with.
        blocks: names of the repeated transformer blocks.
        experts: whether the model has routed experts, or candidates of a profile say how theirs are split.
        operators: names of the operators of each layer of the model, where operators are what is planned.
        together: groups of layers that no cut may part.
        sharded: of a model, the blocks the candidates were made of.
        classes: of a model, its layers by class.
        pricing: of a model, what priced it.
        complete: whether the candidates are all there are; else there was no time to price the others.
    """

    graph: LayerGraph
    candidates: tuple[Candidate, ...]
    blocks: tuple[str, ...] = ()
    experts: bool = False
    operators: Mapping[str, tuple[str, ...]] = field(factory=dict)
    together: tuple[tuple[int, ...], ...] = ()
    sharded: tuple[Block, ...] = ()
    classes: "LayerClasses | None" = None
    pricing: "Pricing | None" = None
    complete: bool = True

    def units(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The layers of the model in order, each with its name and what is planned of it, as indices."""
        position = {name: index for index, name in enumerate(self.graph.layers)}
        groups = [tuple(position[name] for name in names) for names in self.operators.values()]
        home = {layer: group for group in groups for layer in group}
        named = {home[position[names[0]]]: name for name, names in self.operators.items()}
        units = dict.fromkeys(home.get(layer, (layer,)) for layer in self.graph.topological_order())
        return tuple((named.get(unit, self.graph.layers[unit[0]]), unit) for unit in units)

    def even_blocks(self) -> tuple[tuple[int, ...], ...]:
        """What even splits count: the layers of each block in order, the embedding with the first, head with the last.

        Every layer of the model counts as a block but those called `embedding` and `head` at the ends.
        """
        order = list(self.units())
        first = [order.pop(0)] if order[0][0] == "embedding" and len(order) > 1 else []
        last = [order.pop()] if order[-1][0] == "head" and len(order) > 1 else []
        blocks = [layers for _, layers in order]
        blocks[0] = tuple(layer for _, layers in first for layer in layers) + blocks[0]
        blocks[-1] += tuple(layer for _, layers in last for layer in layers)
        return tuple(blocks)

    def blocks_and_ends(self) -> tuple[tuple[int, ...], ...]:
        """As `even_blocks`, but embedding and head count as blocks of their own; none where the model lacks one.

        Megatron-LM counts so with `--account-for-embedding-in-pipeline-split` and
        `--account-for-loss-in-pipeline-split`, with which Llama 3.1's 126 blocks make 128 chunks.
        """
        order = self.units()
        ends = (order[0][0], order[-1][0])
        return tuple(layers for _, layers in order) if ends == ("embedding", "head") else ()


def build_space(
    problem: Problem,
    registry: Registry,
    formulation: Formulation,
    device: DeviceSpec | None,
    limits: Limits | None,
    binding: bool = True,
) -> Space:
    """The plans `problem` allows.

    Args:
        problem: as written.
        registry: offers schedules and strategies.
        formulation: layers and candidates.
        device: the accelerator, whose calibration says how much communication is exposed; None: a profile.
        limits: what the target can run; all but recompute modes, constraints and partition is narrowed already.
        binding: whether plans must satisfy `constraints`; else these are the space's `wishes`.

    Raises:
        InputErrors: names, values or layers that are unknown or impossible, all of them.
    """
    graph, candidates, together = formulation.graph, formulation.candidates, formulation.together
    even = limits is not None and limits.even_stages
    even_blocks, blocks_and_ends = formulation.even_blocks(), () if even else formulation.blocks_and_ends()
    fixed = problem.decided
    exposure = data_parallel_exposure(problem, device)
    degrees = {name for candidate in candidates for name in candidate.degrees}
    demanded, problems = demands(problem, registry, degrees, formulation.experts)
    parts = formulation.operators
    known = {*graph.layers, *parts}
    problems += [
        str(unknown_layer(f"{place} (`{constraint.text}`)", layer, graph, parts))
        for place, constraint in demanded
        for layer in constraint.same_stage
        if layer not in known
    ]
    try:
        stages = problem.fixed.stages if problem.fixed is not None else None
        layers = None
        if stages is not None:
            layers = partition(stages, fixed.get("pp"), graph, formulation.blocks, parts)
            check_together(layers, together, graph, problem.search.granularity)
            if even:
                check_even(layers, even_blocks, str(problem.search.target))
        names = {*PLAN_NAMES, *STAGE_NAMES, *strategy_names(registry, degrees)}
        demanded += [
            ("search.target", constraint)
            for constraint in limit_constraints(problem.search.framework, limits, names, known)
        ]
        compiled = [(place, _on_planned_layers(constraint, parts)) for place, constraint in demanded]
        wished = [place.startswith("constraints[") and not binding for place, _ in compiled]
        space = Space(
            global_batch=problem.training.global_batch,
            uneven_batch=problem.training.uneven_batch,
            exposed=exposure.exposed,
            exposed_often=exposure.exposed_often,
            whole_gradients=problem.training.accumulation == "whole",
            schedules=_with_chunks(
                allowed_schedules(problem, registry), (len(even_blocks), len(blocks_and_ends)), fixed.get("chunks")
            ),
            rank_orders=allowed_rank_orders(problem),
            zero=allowed_zero(problem),
            recompute=_recompute(problem, candidates, fixed.get("recompute"), limits),
            constraints=tuple(each for (_, each), wish in zip(compiled, wished, strict=True) if not wish),
            partition=layers,
            mixed=problem.search.mixed,
            together=together,
            blocks=even_blocks,
            blocks_and_ends=blocks_and_ends,
            even=even,
            zero_degrees=allowed_zero_degrees(problem),
            hiding=exposure.hiding,
            synchronisation=exposure.synchronisation,
            sharded_synchronisation=exposure.sharded_synchronisation,
            wishes=tuple(each for (_, each), wish in zip(compiled, wished, strict=True) if wish),
        )
    except InputError as error:
        raise InputErrors([*problems, str(error)]) from None
    if problems:
        raise InputErrors(problems)
    return space


def _on_planned_layers(constraint: Constraint, parts: Mapping[str, tuple[str, ...]]) -> Constraint:
    """The constraint with each layer of the model replaced by what it is planned as."""
    named = tuple(part for layer in constraint.same_stage for part in parts.get(layer, (layer,)))
    return evolve(constraint, same_stage=named)


def _with_chunks(schedules: Sequence[Schedule], counts: Sequence[int], fixed: Value | None) -> tuple[Schedule, ...]:
    """The schedules as listed, interleaved ones once for every number of chunks that deals out blocks evenly.

    Where there is no such number the fewest chunks stand for it, so that the search can say that it has no plan.
    `counts` are the numbers of blocks, in each way of counting them.
    """
    even = {chunks for blocks in counts for chunks in range(2, blocks // 2 + 1) if blocks % chunks == 0}
    possible = sorted(even) or [2]
    if isinstance(fixed, int) and fixed > 1:
        possible = [fixed]
    found: list[Schedule] = []
    for schedule in schedules:
        if isinstance(schedule, ChunkedSchedule):
            made = [schedule.with_chunks(chunks) for chunks in possible]
            if [chunks_of(each) for each in made] != possible:
                blame(schedule, "ignores the chunks that with_chunks is given")
                raise InternalError(
                    f"schedule {schedule.name!r} ignores the chunks it is given. This is a bug in nest."
                )
            found += made
        else:
            found.append(schedule)
    return tuple(found)


def _recompute(
    problem: Problem, candidates: Sequence[Candidate], fixed: Value | None, limits: Limits | None
) -> tuple[str, ...] | None:
    known = dict.fromkeys(mode.name for candidate in candidates for mode in candidate.recompute)
    listed, decided = problem.search.recompute, None if fixed is None else (str(fixed),)
    # A target may leave out candidates; what is listed for them is no mistake.
    check_modes("search.recompute", listed or (), dict.fromkeys([*profile_modes(problem), *known]), problem)
    check_modes("fixed.recompute", decided or (), known, problem)
    place, wanted = ("search.recompute", listed) if decided is None else ("fixed.recompute", decided)
    if wanted is None and limits is None:
        return None
    return allowed_modes(problem.search.framework, limits, place, known if wanted is None else wanted)


def allowed_modes(target: str | None, limits: Limits | None, place: str, wanted: Iterable[str]) -> tuple[str, ...]:
    """Those of the `wanted` recompute modes that a target has, in their order.

    Raises:
        InputError: it has none of them.
    """
    asked = tuple(dict.fromkeys(wanted))
    if limits is None:
        return asked
    host = (OFFLOAD,) if "activations" in limits.offload else ()
    modes = None if limits.recompute is None else (*limits.recompute, *host)
    found = tuple(name for name in asked if (name in modes if modes is not None else name != OFFLOAD or host))
    if not found:
        raise InputError(beyond(str(target), "recompute modes", modes or (), place, asked))
    return found


def limit_constraints(
    target: str | None, limits: Limits | None, names: Collection[str], layers: Collection[str]
) -> list[Constraint]:
    """The constraints of a target, with their reasons; what `same_stage` says of other layers is left out.

    Raises:
        InputError: one is no constraint, or reads a name that none knows; the text names the target.
    """
    found: list[Constraint] = []
    if limits is None:
        return found
    names = {*names, *(limits.strategies or ())}  # It may have strategies that nobody brings here: their degree is 1.
    for text, reason in limits.constraints.items():
        place = f"the limits of exporter {target!r}"
        try:
            constraint = evolve(parse(text), reason=f"search.target is {target}: {reason}")
        except InputError as error:
            raise InputError(f"{place}: {error}") from None
        unknown = sorted(constraint.names().difference(names))
        if unknown:
            raise unknown_name(f"{place} (`{constraint.text}`)", "name", unknown[0], names)
        if constraint.same_stage:
            constraint = evolve(constraint, same_stage=tuple(each for each in constraint.same_stage if each in layers))
        if constraint.expression is not None or constraint.uniform is not None or len(constraint.same_stage) > 1:
            found.append(constraint)
    return found
