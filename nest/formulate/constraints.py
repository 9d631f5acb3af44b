"""What a problem demands of plans and lets them choose from: `constraints`, `fixed` and the lists of `search`."""

from collections.abc import Collection, Iterable

from nest.catalogue import unknown_name
from nest.errors import InputError
from nest.formulate.shard import FORESEEN
from nest.hooks.registry import Registry
from nest.instance import Schedule
from nest.spec import Problem, ProfileSpec
from nest.spec.constraints import PLAN_NAMES, STAGE_NAMES, Constraint, equals, parse
from nest.spec.problem import ALL_RANKS, OFFLOAD, RANK_ORDERS

FIXED_ONLY = ("etp", "zero_degree", "recompute", "schedule", "rank_order")
"""What `fixed` takes beside the names constraints know."""

Value = int | float | str | bool


def strategy_names(registry: Registry, degrees: Iterable[str]) -> set[str]:
    """Names of strategies that constraints know: registered, set aside or foreseen ones, and further `degrees`."""
    return {*registry.strategies(), *registry.absent("strategies"), *FORESEEN, *degrees}


def demands(
    problem: Problem, registry: Registry, degrees: Iterable[str], experts: bool = False
) -> tuple[list[tuple[str, Constraint]], list[str]]:
    """What `constraints` and `fixed` demand of a plan, each with its place, and what is wrong with the others.

    `degrees` are names of degrees that candidates have beside those of strategies; `experts`: there are routed ones.
    """
    fixed, names = problem.decided, frozenset({*PLAN_NAMES, *STAGE_NAMES, *strategy_names(registry, degrees)})
    found: list[tuple[str, Constraint]] = []
    wrong: list[str] = []
    for index, text in enumerate(problem.constraints):
        place = f"constraints[{index}]"
        try:
            constraint = parse(text)
        except InputError as error:
            wrong.append(f"{place}: {error}")
            continue
        unknown = sorted(constraint.names() - names)
        wrong += [str(unknown_name(f"{place} (`{constraint.text}`)", "name", name, names)) for name in unknown]
        found.append((place, constraint))
    for name, value in fixed.items():
        try:
            found += [(f"fixed.{name}", constraint) for constraint in _decision(name, value, names, experts)]
        except InputError as error:
            wrong.append(str(error))
    return found, wrong


def _decision(name: str, value: Value, names: frozenset[str], experts: bool) -> Iterable[Constraint]:
    """What `fixed.name = value` demands of a plan; decisions on the space itself demand nothing further."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    not_whole = InputError(f"fixed.{name} is {value!r}; it must be a whole number of at least 1.")
    if name == "etp" and not whole:
        raise not_whole
    if name in FIXED_ONLY:
        return (equals("etp", value),) if name == "etp" and experts else ()
    if name not in names:
        raise unknown_name("fixed", "decision", name, {*names, *FIXED_ONLY, "stages"}, value)
    if name == "zero":
        return ()
    if isinstance(value, bool) and name not in PLAN_NAMES:
        return (parse(f"{name} > 1 or tp == 1") if value else equals(name, 1),)
    if not whole and name not in FORESEEN:  # Of those, `allowed_degrees` says so.
        raise not_whole
    return (equals(name, value),) if whole else ()


def allowed_schedules(problem: Problem, registry: Registry) -> tuple[Schedule, ...]:
    """The schedules to choose from, preferred first."""
    fixed, known = problem.decided.get("schedule"), registry.schedules()
    decided = () if fixed is None else (str(fixed),)
    for place, names in (("training.schedule", problem.training.schedule), ("fixed.schedule", decided)):
        for name in names:
            if name not in known:
                raise unknown_name(place, "schedule", name, known)
    return tuple(known[name] for name in dict.fromkeys(decided or problem.training.schedule))


def allowed_rank_orders(problem: Problem) -> tuple[str, ...]:
    """The rank orders to choose from, preferred first."""
    fixed = problem.decided.get("rank_order")
    if fixed is None:
        return tuple(dict.fromkeys(problem.search.rank_order))
    if fixed not in RANK_ORDERS:
        raise unknown_name("fixed.rank_order", "rank order", str(fixed), RANK_ORDERS)
    return (str(fixed),)


def allowed_zero(problem: Problem) -> tuple[int, ...]:
    """The ZeRO stages to choose from, preferred first."""
    fixed = problem.decided.get("zero")
    if fixed is None:
        return tuple(dict.fromkeys(problem.search.zero))
    if isinstance(fixed, bool) or fixed not in (0, 1, 2, 3):
        raise InputError(f"fixed.zero is {fixed!r}; it must be 0, 1, 2 or 3.")
    return (int(fixed),)


def allowed_zero_degrees(problem: Problem) -> tuple[int | None, ...]:
    """The ranks over which ZeRO may shard at most, to choose from; all ranks (None) first, the others as listed.

    Raises:
        InputError: `fixed.zero_degree` is no number of ranks.
    """
    fixed = problem.decided.get("zero_degree")
    if fixed is not None and fixed != ALL_RANKS and (type(fixed) is not int or fixed < 1):
        raise InputError(f"fixed.zero_degree is {fixed!r}; it must be a whole number of at least 1, or {ALL_RANKS}.")
    wanted = problem.search.zero_degree if fixed is None else (fixed,)
    numbers = dict.fromkeys(int(each) for each in wanted if each != ALL_RANKS)
    return ((None,) if ALL_RANKS in wanted else ()) + tuple(numbers)


def profile_modes(problem: Problem) -> list[str]:
    """The recompute modes of the candidates of a profile, whatever the problem leaves of them."""
    candidates = problem.profile.candidates if isinstance(problem.profile, ProfileSpec) else ()
    return [name for each in candidates for name in each.recompute]


def check_modes(place: str, wanted: Iterable[str], known: Collection[str], problem: Problem) -> None:
    """Refuse recompute modes that no candidate has; the error names `place`."""
    for name in wanted:
        if name == OFFLOAD and name not in known and problem.model is not None:
            raise InputError(
                f"{place}: `{OFFLOAD}` is possible only where `activations` is in training.offload; add it."
            )
        if name not in known:
            raise unknown_name(place, "recompute mode", name, known)
