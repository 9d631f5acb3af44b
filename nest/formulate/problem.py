"""Reads a path, mapping or record into a self-contained problem and its instance."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from attrs import evolve

from nest.catalogue import known_cluster
from nest.errors import FieldErrors, InputError, InputErrors, NoPlanYet
from nest.formulate.cluster import by_levels, cluster_calibration, described
from nest.formulate.instance import Formulation, formulate, read_options
from nest.formulate.model import parts_left_out, resolve_model, with_further_layers, with_sequence_length
from nest.formulate.modes import profile_modes
from nest.formulate.risk import risk_of
from nest.formulate.slips import slips, slips_of_plan, uneven_sequence
from nest.formulate.stack import device_of, stack_notice, with_stack
from nest.formulate.target import schedule_notice, untargeted, with_target
from nest.graph import OperatorGraph
from nest.hooks.registry import Registry, registry
from nest.instance import ChunkedSchedule, Instance, Schedule, SearchProgress, chunks_of
from nest.io import is_file_name, placed, read, read_mapping, structure, structure_source, unstructure
from nest.solve.effort import Deadline, Waiting
from nest.spec import NO_STACK, ClusterSpec, PlanDocument, Problem, ProfileSpec
from nest.spec.problem import NO_TARGET, OFFLOAD, RANK_ORDERS, RECOMPUTE_MODES, ZERO_STAGES

Source = str | Path | Mapping[str, Any]
Changes = Mapping[str, Mapping[str, Any]]
"""Replacement keys by section."""

Record = TypeVar("Record", Problem, PlanDocument)


@contextmanager
def naming(source: object, below: str = "") -> Iterator[None]:
    """Let errors name the file `source` and the line of their subject, `below` a key."""
    try:
        yield
    except (InputError, FieldErrors) as error:
        # A decision may make a record that cannot be, such as a micro-batch above the batch.
        placed_error = error if isinstance(error, InputError) else InputError(f"{error}.")
        raise placed(Path(source), placed_error, below) if isinstance(source, (str, Path)) else placed_error from None


def read_record(
    source: Source | Record, cls: type[Record], changes: Changes | None = None
) -> tuple[Record, Mapping[str, Any]]:
    """Read a record, and its mapping without unwritten keys, with `changes` applied.

    Raises:
        InputError: it cannot be read, or is something else.
    """
    if isinstance(source, cls):
        if not changes:
            return source, source.to_dict()
        source = source.to_dict()
    if isinstance(source, (str, Path)):
        content = read_mapping(Path(source))
        _check_kind(content.mapping, cls)
        content = content._replace(mapping=_changed(content.mapping, changes))
        return structure_source(content, cls), content.mapping
    if isinstance(source, Mapping):
        _check_kind(source, cls)
        source = _changed(source, changes)
        if isinstance(source.get("model"), OperatorGraph):  # As nest_torch.capture returns it.
            source["model"] = unstructure(source["model"])
        return structure(source, cls), source
    raise InputError(f"expected a path or a mapping, not {type(source).__name__}.")


def _changed(mapping: Mapping[str, Any], changes: Changes | None) -> dict[str, Any]:
    """Copy of `mapping` with changed keys in its sections; a malformed section is left for errors."""
    changed = dict(mapping)
    for section, keys in (changes or {}).items():
        written = changed.get(section) or {}
        if isinstance(written, Mapping):
            changed[section] = {**written, **keys}
    return changed


def _check_kind(mapping: Mapping[str, Any], cls: Any) -> None:
    """Refuse a plan given for a problem, and the reverse, in one sentence."""
    is_plan = "stages" in mapping and "problem" in mapping
    if is_plan and cls is Problem:
        raise InputError("this is a plan, not a problem; use its `problem` section.")
    if not is_plan and cls is PlanDocument and "training" in mapping:
        raise InputError("this is a problem, not a plan; `nest solve PROBLEM --output FILE` writes a plan.")
    if cls is PlanDocument:
        PlanDocument.refuse_partial(mapping.get("problem"))


def whole_problem(
    source: Source | Problem,
    known: Registry,
    fix: Mapping[str, Any] | None = None,
    changes: Changes | None = None,
    folder: Path | None = None,
) -> tuple[Problem, Mapping[str, Any]]:
    """Problem with `changes`, `fix` decided and its files read in, and its mapping as written.

    Relative paths outside files start in `folder`.
    """
    read, written = read_record(source, Problem, changes)
    if fix:
        from nest.formulate.fixed_plan import with_decisions

        read = with_decisions(read, fix)
    base = Path(source).parent if isinstance(source, (str, Path)) else folder
    whole = self_contained(read, base, known)
    if not isinstance(source, Problem):
        whole.refuse_missing_units()
    return whole, written


def self_contained(problem: Problem, base: Path | None, known: Registry | None = None) -> Problem:
    """Put model, profile, device, topology and stack in place, so that a plan file can carry the problem alone.

    Values from its stack are written out (`nest.formulate.stack`). `known` is the registry; None: all installed.

    Raises:
        InputError: a file it refers to cannot be read.
    """
    known = known or registry()
    if problem.model is not None:
        problem = evolve(problem, model=with_further_layers(resolve_model(problem.model, base), problem.training))
        problem = evolve(problem, training=with_sequence_length(problem.training, problem.model, known))
    if isinstance(problem.profile, str):
        problem = evolve(problem, profile=read((base or Path()) / problem.profile, ProfileSpec))
    cluster = problem.cluster
    if not by_levels(cluster):
        from nest.formulate.topology import in_place

        cluster = in_place(cluster, known, base)
    if isinstance(cluster.device, str) and is_file_name(cluster.device):
        cluster = evolve(cluster, device=described(cluster.device, base))
    if cluster.pools is not None:
        from nest.formulate.pools import pools_in_place

        cluster = evolve(cluster, pools=pools_in_place(cluster.pools, base))
    cluster = evolve(cluster, calibration=cluster_calibration(cluster, base))
    try:
        whole = evolve(problem, cluster=_with_machines(cluster))
    except FieldErrors as error:  # Candidates and decisions name pools, which are known now.
        raise InputError(f"{error}.") from None
    return with_stack(whole, device_of(cluster), known, base)


def carried_problem(plan: PlanDocument, known: Registry) -> Problem:
    """Self-contained problem of a plan, at its memory risk."""
    problem = structure(plan.problem, Problem)
    if problem.model is not None and problem.training.stack is None:  # It was made before there were stacks.
        problem = evolve(problem, training=evolve(problem.training, stack=NO_STACK))
    return risk_of(self_contained(problem, None, known), plan)


def _with_machines(cluster: ClusterSpec) -> ClusterSpec:
    """`cluster` with the accelerators per machine, if only its device determines them.

    Machines of another size than its levels allow are left to the levels.
    """
    if cluster.hosts is not None or cluster.devices_per_host is not None:
        return cluster
    named = known_cluster(cluster.name)
    levels = cluster.levels if named is None else named.levels
    device = device_of(cluster)
    each = None if device is None else device.devices_per_host
    if each is None or not levels or levels[0].fanout % each:
        return cluster
    return evolve(cluster, devices_per_host=each)


def formulated(
    problem: Source | Problem,
    known: Registry,
    progress: Callable[[SearchProgress], None] | None = None,
    notify: Callable[[str], None] | None = None,
    changes: Changes | None = None,
    deadline: Deadline | None = None,
) -> tuple[Problem, Instance, Formulation]:
    """Complete a problem and build its instance, with what that was made of.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        progress: called with the state of the formulation.
        notify: called with each assumption, a sentence each.
        changes: replacement keys by section.
        deadline: see `formulate`.

    Raises:
        InputError: the problem cannot be used.
        NoPlanYet: the time is up before anything could be priced.
    """
    whole = complete_problem(problem, known, notify, changes)
    with naming(problem):
        return whole, *formulate(whole, known, waiting=Waiting(deadline or Deadline(), progress))


def complete_problem(
    problem: Source | Problem,
    known: Registry,
    notify: Callable[[str], None] | None = None,
    changes: Changes | None = None,
) -> Problem:
    """Complete a problem to be solved, with its target; arguments as in `formulated`.

    Raises:
        InputError: the problem cannot be used.
    """
    with naming(problem):
        whole, written = whole_problem(problem, known, None, changes)
        stack = stack_notice(whole, written, known)
        whole, target = with_target(whole, written, known)
        if notify is not None:
            implied = (None if target is None else target.sentence, schedule_notice(whole, written, known), stack)
            beside = (*slips(whole, known), _by_levels(whole.cluster, known), *uneven_sequence(whole, known))
            rest = parts_left_out(whole.model, whole.training, known)
            for sentence in filter(None, (*implied, *rest, *beside)):
                notify(sentence)
        refuse_contradictions(whole, written, known)
        return whole


def tell_of_plan(plan: PlanDocument, problem: Problem, notify: Callable[[str], None] | None) -> PlanDocument:
    """Call `notify` with each slip in the problem that the plan shows; return the plan."""
    if notify is not None:
        for sentence in slips_of_plan(plan, problem):
            notify(sentence)
    return plan


def _by_levels(cluster: ClusterSpec, known: Registry) -> str | None:
    """Note that a non-hierarchical network is planned by levels; None: no note."""
    if cluster.topology is None:
        return None
    from nest.formulate.network import by_levels_notice

    return by_levels_notice(cluster, known)


def decided_problem(
    problem: Source | Problem,
    fix: Mapping[str, Any] | None,
    known: Registry,
    notify: Callable[[str], None] | None = None,
    changes: Changes | None = None,
) -> Problem:
    """Complete a problem with `fix` decided, and without a target unless it names one."""
    whole, written = whole_problem(problem, known, fix, changes)
    stack = stack_notice(whole, written, known)
    if notify is not None:
        rest = parts_left_out(whole.model, whole.training, known)
        for sentence in filter(None, (stack, *rest, *slips(whole, known))):
            notify(sentence)
    return untargeted(whole, written, known)


def target_diagnosis(
    problem: Problem, registry: Registry, feasible: Callable[[Instance, Deadline], bool], deadline: Deadline
) -> str:
    """For an infeasible problem: whether other targets have a plan; empty without a target.

    `feasible` checks an instance until a deadline; after `deadline` the answer is empty.
    """
    target = problem.search.framework
    if target is None:
        return ""
    try:
        opened = evolve(problem, search=evolve(problem.search, target=NO_TARGET))
        if feasible(formulate(opened, registry, waiting=Waiting(deadline, None))[0], deadline):
            return f" Without a target (`search.target: none`) there is a plan: the limits of {target} rule it out."
    except (InputError, NoPlanYet):  # What the target leaves out may be more than can be searched.
        return ""
    return " Without a target (`search.target: none`) there is no plan either."


def refuse_contradictions(problem: Problem, written: Mapping[str, Any], registry: Registry) -> None:
    """Refuse decisions that the problem's own lists exclude, naming both places, and then any other errors.

    `written` is the mapping without unwritten lists, which contradict nothing.

    Raises:
        InputErrors: there is such a decision.
    """
    training, search, decided = problem.training, problem.search, problem.decided
    lists: tuple[tuple[str, str, Collection[Any] | None, Collection[object] | None], ...] = (
        ("micro_batch", "training", training.micro_batch, range(1, training.global_batch + 1)),
        ("schedule", "training", training.schedule, registry.schedules()),
        ("rank_order", "search", search.rank_order, RANK_ORDERS),
        ("zero", "search", search.zero, ZERO_STAGES),
        ("zero_degree", "search", search.zero_degree, None),
        ("recompute", "search", search.recompute, (*RECOMPUTE_MODES, OFFLOAD, *profile_modes(problem.profile))),
    )
    found: list[Contradiction] = []
    for name, section, allowed, known in lists:
        if name not in decided or allowed is None or name not in (written.get(section) or ()):
            continue
        value = decided[name]
        # Other values are reported as invalid.
        if value not in allowed and (known is None or value in known):
            found.append(_contradiction(name, value, f"{section}.{name}", allowed))
    for name, degrees in problem.strategies.items():
        if name in decided and not any(_same_degree(decided[name], each) for each in degrees):
            found.append(_contradiction(name, decided[name], f"strategies.{name}", degrees))
    if "recompute_layers" in decided and search.recompute_layers is False:
        layers = decided["recompute_layers"]
        found.append(_contradiction("recompute_layers", layers, "search.recompute_layers", ["all blocks"]))
    fixed = decided.get("schedule")
    place = "training.schedule" if fixed is None else "fixed.schedule"
    names = training.schedule if fixed is None else (str(fixed),)
    found += _chunks(decided.get("chunks"), place, names, registry.schedules())
    if not found:
        return
    others = dict(found)
    problems = list(others)
    try:
        read_options(problem, registry)
    except InputErrors as errors:
        problems += errors.problems
    except InputError as error:
        problems.append(str(error))
    raise InputErrors(problems, others)


Contradiction = tuple[str, str]  # A decision that a list excludes: the sentence, and the place of the list.


def _contradiction(name: str, value: object, place: str, allowed: Iterable[object]) -> Contradiction:
    decided, *choices = (str(each).lower() if isinstance(each, bool) else str(each) for each in (value, *allowed))
    return f"fixed.{name} is {decided}, but {place} allows {', '.join(choices)} only; change one of them.", place


def _same_degree(decided: object, allowed: int | bool) -> bool:
    """True if `fixed` and the list allow a common degree; true is the highest, false 1."""
    if decided is True or allowed is True:
        return (decided is True or _is_above_1(decided)) and (allowed is True or _is_above_1(allowed))
    return max(decided, 1) == max(allowed, 1) if isinstance(decided, int) else True


def _is_above_1(degree: object) -> bool:
    return isinstance(degree, int) and degree > 1


def _chunks(chunks: object, place: str, names: Sequence[str], known: Mapping[str, Schedule]) -> Iterator[Contradiction]:
    """Chunks that none of the schedules of a list offers."""
    if isinstance(chunks, bool) or not isinstance(chunks, int) or chunks < 1 or not {*names} <= known.keys():
        return
    if not any(_deals(known[each], chunks) for each in names):
        yield _contradiction("chunks", chunks, place, names)


def _deals(schedule: Schedule, chunks: int) -> bool:
    return chunks > 1 if isinstance(schedule, ChunkedSchedule) else chunks_of(schedule) == chunks
