"""Space of plans: demands of a problem (`constraints`, `fixed`) and its choices (`search`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import asdict, evolve

from nest.catalogue import unknown_name
from nest.deployment import Limits
from nest.errors import InputError, InputErrors, InternalError
from nest.formulate.formulation import Formulation
from nest.formulate.modes import partial_modes, whole_modes
from nest.formulate.shard import FORESEEN
from nest.formulate.stack import data_parallel_exposure, hidden_messages
from nest.hooks.calls import attribute
from nest.hooks.registry import Registry
from nest.instance import ChunkedSchedule, LayerGraph, Schedule, Space, Usual, chunks_of
from nest.spec import DeviceSpec
from nest.spec.constraints import PLAN_NAMES, STAGE_NAMES, Constraint, equals, parse
from nest.spec.problem import ALL_RANKS, RANK_ORDERS, usual_rank_order

if TYPE_CHECKING:
    from nest.formulate.options import Options

USUAL_SCHEDULE = "1f1b"  # Default pipeline schedule of frameworks (PROBLEM.md section 4).

FIXED_ONLY = ("etp", "zero_degree", "recompute", "recompute_layers", "recompute_rest", "schedule", "rank_order")
"""Names in `fixed` besides those of constraints."""

Value = int | float | str | bool


def constraint_names(registry: Registry, degrees: Iterable[str]) -> frozenset[str]:
    """Names in constraints: registered, disabled and foreseen strategies, `degrees`, and plan values."""
    strategies = {*registry.strategies(), *registry.missing("strategies"), *FORESEEN}
    return frozenset({*PLAN_NAMES, *STAGE_NAMES, *strategies, *degrees})


def demands(
    constraints: Iterable[str], fixed: Mapping[str, Value], names: frozenset[str]
) -> tuple[tuple[str, Constraint], ...]:
    """Constraints from `constraints` and `fixed`, each with its place; `names` are the known ones.

    Raises:
        InputErrors: all their faults.
    """
    demanded: list[tuple[str, Constraint]] = []
    wrong: list[str] = []
    for index, text in enumerate(constraints):
        place = f"constraints[{index}]"
        try:
            constraint = parse(text)
        except InputError as error:
            wrong.append(f"{place}: {error}")
            continue
        unknown = sorted(constraint.names() - names)
        wrong += [str(unknown_name(f"{place} (`{constraint.text}`)", "name", name, names)) for name in unknown]
        demanded.append((place, constraint))
    for name, value in fixed.items():
        try:
            demanded += [(f"fixed.{name}", constraint) for constraint in _decision(name, value, names)]
        except InputError as error:
            wrong.append(str(error))
    if wrong:
        raise InputErrors(wrong)
    return tuple(demanded)


def _decision(name: str, value: Value, names: frozenset[str]) -> Iterable[Constraint]:
    """Constraints from `fixed.name = value`; decisions on the space itself add none."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    not_whole = InputError(f"fixed.{name} is {value!r}; it must be a whole number of at least 1.")
    if name == "etp" and not whole:
        raise not_whole
    if name in FIXED_ONLY:
        return (equals("etp", value),) if name == "etp" else ()  # `build_space` keeps it where there are experts.
    if name not in names:
        raise unknown_name("fixed", "decision", name, {*names, *FIXED_ONLY, "stages"}, value)
    if name == "zero":
        return ()
    if isinstance(value, bool) and name not in PLAN_NAMES:
        return (parse(f"{name} > 1 or tp == 1") if value else equals(name, 1),)
    if not whole and name not in FORESEEN:  # Of those, `allowed_degrees` says so.
        raise not_whole
    return (equals(name, value),) if whole else ()


def allowed_schedules(
    listed: Iterable[str], fixed: Value | None, known: Mapping[str, Schedule]
) -> tuple[Schedule, ...]:
    """Schedules to choose from, preferred first: the `listed` or fixed ones among the `known`."""
    listed, decided = tuple(listed), () if fixed is None else (str(fixed),)
    for place, names in (("training.schedule", listed), ("fixed.schedule", decided)):
        for name in names:
            if name not in known:
                raise unknown_name(place, "schedule", name, known)
    return tuple(known[name] for name in dict.fromkeys(decided or listed))


def allowed_rank_orders(listed: Iterable[str], fixed: Value | None = None) -> tuple[str, ...]:
    """Rank orders to choose from, preferred first: the `listed` or fixed ones."""
    if fixed is None:
        return tuple(dict.fromkeys(listed))
    if fixed not in RANK_ORDERS:
        raise unknown_name("fixed.rank_order", "rank order", str(fixed), RANK_ORDERS)
    return (str(fixed),)


def allowed_zero(listed: Iterable[int], fixed: Value | None = None) -> tuple[int, ...]:
    """ZeRO stages to choose from, preferred first: the `listed` or fixed ones."""
    if fixed is None:
        return tuple(dict.fromkeys(listed))
    if isinstance(fixed, bool) or fixed not in (0, 1, 2, 3):
        raise InputError(f"fixed.zero is {fixed!r}; it must be 0, 1, 2 or 3.")
    return (int(fixed),)


def allowed_zero_degrees(listed: Collection[int | str], fixed: Value | None = None) -> tuple[int | None, ...]:
    """Most ranks for ZeRO sharding to choose from; all ranks (None) first, the others as listed.

    Raises:
        InputError: `fixed.zero_degree` is no number of ranks.
    """
    if fixed is not None and fixed != ALL_RANKS and (type(fixed) is not int or fixed < 1):
        raise InputError(f"fixed.zero_degree is {fixed!r}; it must be a whole number of at least 1, or {ALL_RANKS}.")
    wanted = listed if fixed is None else (fixed,)
    numbers = dict.fromkeys(int(each) for each in wanted if each != ALL_RANKS)
    return ((None,) if ALL_RANKS in wanted else ()) + tuple(numbers)


def build_space(
    options: Options, registry: Registry, formulation: Formulation, device: DeviceSpec | None, binding: bool = True
) -> Space:
    """Plans that a problem allows.

    Args:
        options: within the target already, except for recompute modes, constraints and partition.
        device: its calibration gives exposed communication; None: a profile.
        binding: plans must satisfy `constraints`; else these are the space's `wishes`.

    Raises:
        InputErrors: all unknown or impossible names, values or layers.
    """
    graph, candidates, together = formulation.graph, formulation.candidates, formulation.together
    training, search, fixed, limits = options.training, options.search, options.fixed.values, options.limits
    even = limits is not None and limits.even_stages
    even_blocks, blocks_and_ends = formulation.even_blocks(), () if even else formulation.blocks_and_ends()
    units, operators = formulation.recomputed_units(), formulation.operators
    demanded = [(place, each) for place, each in options.demanded if place != "fixed.etp" or formulation.experts]
    problems = _unknown_layers(demanded, formulation)
    try:
        schedules = _with_chunks(_sending(options), (len(even_blocks), len(blocks_and_ends)), fixed.get("chunks"), even)
        layers = None
        if options.fixed.stages is not None:
            from nest.formulate.partition import check_even, check_together, partition

            layers = partition(options.fixed.stages, fixed.get("pp"), graph, formulation.blocks, operators)
            check_together(layers, together, graph, search.granularity)
            if even and all(chunks_of(each) == 1 for each in schedules):
                check_even(layers, even_blocks, str(search.target))
        whole = whole_modes(options, candidates)
        parts = partial_modes(options, candidates, whole, len(units), search.recompute if binding else None)
        names = constraint_names(registry, (name for each in candidates for name in each.degrees))
        demanded += [
            ("search.target", constraint)
            for constraint in limit_constraints(search.framework, limits, names, {*graph.layers, *operators})
        ]
        compiled = [(place, _on_planned_layers(constraint, operators)) for place, constraint in demanded]
        wished = [place.startswith("constraints[") and not binding for place, _ in compiled]
        space = Space(
            global_batch=training.global_batch,
            uneven_batch=training.uneven_batch,
            whole_gradients=training.accumulation == "whole",
            by_products=training.stage_split == "products",
            adapters=training.trained is not None and not training.trained.layers,
            schedules=schedules if layers is None else _following(schedules, layers, graph),
            rank_orders=options.rank_orders,
            zero=options.zero,
            recompute=() if parts and "recompute_layers" in fixed else whole,
            constraints=tuple(each for (_, each), wish in zip(compiled, wished, strict=True) if not wish),
            partition=layers,
            mixed=search.mixed,
            together=together,
            blocks=even_blocks,
            blocks_and_ends=blocks_and_ends,
            even=even,
            hidden_messages=hidden_messages(training, (each.name for each in options.schedules), registry),
            zero_degrees=options.zero_degrees,
            **asdict(data_parallel_exposure(training, device, options.model is not None)),
            wishes=tuple(each for (_, each), wish in zip(compiled, wished, strict=True) if wish),
            direct=search.tensors == "direct",
            alike=options.cluster.pools is not None and limits is not None and not limits.mixed,
            replayed=options.replayed,
            usual=_usual(options),
            partial=parts,
            units=units,
        )
    except InputError as error:
        raise InputErrors([*problems, str(error)]) from None
    if problems:
        raise InputErrors(problems)
    return space


def _usual(options: Options) -> Usual:
    """Default decisions of the target, or of most frameworks."""
    known = options.limits or Limits()
    return Usual(
        schedule=USUAL_SCHEDULE,
        zero=known.usual_zero if known.usual_zero in options.zero else options.zero[0],
        rank_order=usual_rank_order(options.rank_orders, known.usual_rank_order),
    )


def _unknown_layers(demanded: Sequence[tuple[str, Constraint]], formulation: Formulation) -> list[str]:
    """Unknown layers of constraints, a sentence each with its place."""
    known = {*formulation.graph.layers, *formulation.operators}
    unknown = [(place, each, name) for place, each in demanded for name in each.same_stage if name not in known]
    if not unknown:
        return []
    from nest.formulate.partition import unknown_layer

    return [
        str(unknown_layer(f"{place} (`{constraint.text}`)", name, formulation.graph, formulation.operators))
        for place, constraint, name in unknown
    ]


def _on_planned_layers(constraint: Constraint, parts: Mapping[str, tuple[str, ...]]) -> Constraint:
    """Constraint with each layer of the model replaced by its planned layers."""
    named = tuple(part for layer in constraint.same_stage for part in parts.get(layer, (layer,)))
    return evolve(constraint, same_stage=named)


def _sending(options: Options) -> tuple[Schedule, ...]:
    """Schedules that can send tensors as the problem demands.

    Raises:
        InputError: there are none, or the network is no hierarchy.
    """
    if options.search.tensors != "direct":
        return options.schedules
    if options.cluster.topology is not None:
        raise InputError("search.tensors: direct needs cluster.levels; add them, or leave it out.")
    able = tuple(each for each in options.schedules if not isinstance(each, ChunkedSchedule))
    if not able:
        raise InputError(
            "search.tensors: direct needs a training.schedule with one chunk per stage; name one, or leave it out."
        )
    return able


FEW_CHUNKS = 4
"""Most chunks per stage that are tried even or not; more only if they can be even.

More chunks add messages for ever less bubble, and all sizes of their runs of blocks are searched."""


def tried_chunks(counts: Sequence[int], even: bool) -> list[int]:
    """Chunks per stage that a search tries unless fixed, ascending.

    Those that divide the blocks evenly for some number of stages and, unless chunks must be `even`, those up to
    `FEW_CHUNKS` for which two stages have enough blocks. If there is none, the fewest chunks are used, so that the
    search can report that there is no plan. `counts` are the numbers of blocks, in each way of counting.
    """
    numbers = {chunks for blocks in counts for chunks in range(2, blocks // 2 + 1) if blocks % chunks == 0}
    if not even:
        numbers.update(range(2, min(FEW_CHUNKS, max(counts) // 2) + 1))
    return sorted(numbers) or [2]


def _with_chunks(
    schedules: Sequence[Schedule], counts: Sequence[int], fixed: Value | None, even: bool
) -> tuple[Schedule, ...]:
    """Schedules as listed; those for any number of chunks once for each number tried."""
    possible = [fixed] if isinstance(fixed, int) and fixed > 1 else tried_chunks(counts, even)
    result: list[Schedule] = []
    for schedule in schedules:
        if isinstance(schedule, ChunkedSchedule):
            made = [schedule.with_chunks(chunks) for chunks in possible]
            if [chunks_of(each) for each in made] != possible:
                attribute(schedule, "ignores the chunks that with_chunks is given")
                raise InternalError(
                    f"schedule {schedule.name!r} ignores the chunks it is given. This is a bug in nest."
                )
            result += made
        else:
            result.append(schedule)
    return tuple(result)


def _following(
    schedules: tuple[Schedule, ...], stages: tuple[tuple[int, ...], ...], graph: LayerGraph
) -> tuple[Schedule, ...]:
    """Schedules with which stages may hold these layers: several chunks each if one reads from a later one.

    Raises:
        InputError: one does, and every schedule has one chunk for each stage.
    """
    from nest.formulate.partition import check_order

    several = tuple(each for each in schedules if chunks_of(each) > 1)
    try:
        check_order(stages, graph)
    except InputError:
        if not several:
            raise
        return several
    return schedules


def limit_constraints(
    target: str | None, limits: Limits | None, names: Collection[str], layers: Collection[str]
) -> list[Constraint]:
    """Constraints of a target, with their reasons; without `same_stage` for other layers.

    Raises:
        InputError: an invalid constraint, or an unknown name in it; the text names the target.
    """
    constraints: list[Constraint] = []
    if limits is None:
        return constraints
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
            constraints.append(constraint)
    return constraints
