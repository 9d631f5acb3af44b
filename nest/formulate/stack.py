"""`training.stack`: defaults of a problem from its software (docs/reference/stacks.md)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from attrs import evolve, fields, fields_dict

from nest.catalogue import devices, known_cluster, unknown_name
from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.instance import Exposure as Exposure
from nest.io import is_file_name, read, there_is
from nest.spec import (
    NO_STACK,
    ClusterSpec,
    Coefficients,
    DeviceSpec,
    Overlap,
    Problem,
    StackDefaults,
    StackSpec,
    Training,
)
from nest.units import listed

PLACE, TARGET_PLACE = "training.stack", "search.target"


def value_of(training: Training | StackDefaults, key: str) -> Any:
    """Value of a key that stacks fill in, such as `overlap.data`."""
    return attrgetter(key)(training)


class Implied(NamedTuple):
    """The implied stack of a problem without one."""

    name: str
    place: str  # The key that implies it.


def with_stack(problem: Problem, device: DeviceSpec | None, known: Registry, base: Path | None = None) -> Problem:
    """Fill in missing keys of `training` from the problem's stack, and record an implied stack.

    A key of `training` wins over the stack; without `training.stack` and `search.target`, the usual stack of `device`
    is implied. A profile has no stack: its candidates state their times.
    """
    if problem.model is None:
        return problem
    training = problem.training
    written, place = training.stack, PLACE
    if written is None:
        asked = (problem.search.framework, training.precision, problem.decided.get("zero"))
        usual = implied(*asked, device, known)
        written, place = (NO_STACK, PLACE) if usual is None else (usual.name, usual.place)
    stack = described(written, known, base, place)
    if place not in (PLACE, TARGET_PLACE):
        flags = {key: other for key, other in stack.unknown.items() if key.startswith("overlap.")}
        if any(value_of(training, key) == other for key, other in flags.items()):
            stack = _without_flags(stack, flags)
        if training.unknown is None:
            open_keys = {key: other for key, other in stack.unknown.items() if value_of(training, key) is None}
            training = evolve(training, unknown=open_keys)
    if isinstance(written, str) and is_file_name(written):
        written = stack
    return evolve(problem, training=evolve(_filled(training, stack, known.schedules()), stack=written))


def implied(
    target: str | None, precision: str, zero: object, device: DeviceSpec | None, known: Registry
) -> Implied | None:
    """Stack of `search.target`, else of the training precision, else the device's usual one; None: none.

    If ZeRO 3 is fixed (`zero`) and the framework of the usual stack does not run it, the alternative it names.
    """
    names = (name for name, stack in known.stacks().items() if target in stack.targets)
    if target is not None and (name := next(names, None)) is not None:
        return Implied(name, TARGET_PLACE)
    if device is None or device.stack is None:
        return None
    for name, stack in known.stacks().items():
        if precision in getattr(stack, "precisions", ()):
            return Implied(name, "training.precision")
    usual = known.stacks().get(device.stack)
    instead = getattr(usual, "fully_sharded", "")
    if instead in known.stacks() and zero == 3:
        return Implied(instead, "fixed.zero")
    return Implied(device.stack, "cluster.device.stack")


def described(name: str | StackSpec, known: Registry, base: Path | None = None, place: str = PLACE) -> StackSpec:
    """Resolve a stack: in place, registered, or in a file; errors name `place`."""
    if isinstance(name, StackSpec):
        return name
    if is_file_name(name):
        path = (base or Path()) / name
        if there_is(path) != "file":
            raise InputError(f"{place}: there is no file {str(path)!r:.200}; `nest stacks` lists the names known.")
        return read(path, StackSpec)
    stacks = known.stacks()
    if name in known.missing("stacks"):
        raise InputError(f"{place}: the plug-in of software stack {name!r} is disabled; enable it or name another.")
    if name not in stacks:
        raise unknown_name(place, "software stack", name, stacks)
    offered = stacks[name]
    return StackSpec(**{key: getattr(offered, key) for key in fields_dict(StackSpec) if hasattr(offered, key)})


def _without_flags(stack: StackSpec, flags: Mapping[str, Any]) -> StackSpec:
    """Return an implied stack as launched without its `flags` for overlap, which are given by their other values.

    `unknown` then lists the values that the stack has with these flags.
    """
    overlap = evolve(stack.training.overlap, **{key.partition(".")[2]: other for key, other in flags.items()})
    usual = {key: value_of(stack.training, key) for key in flags}
    return evolve(stack, training=evolve(stack.training, overlap=overlap), unknown={**stack.unknown, **usual})


WHOLE = ("fp32", "fp16")
"""Precisions with parameters of that format: a stack's gradients of bf16 parameters do not apply."""


def _filled(training: Training, stack: StackSpec, schedules: Collection[str]) -> Training:
    """`training` with missing keys from `stack`; `schedules` are those known."""
    usual = stack.training
    overlap = usual.overlap
    if overlap.pipeline is None and stack.pipeline_overlap:
        overlap = evolve(overlap, pipeline=tuple(name for name in stack.pipeline_overlap if name in schedules))
    keys = [each.name for each in fields(StackDefaults) if each.name != "overlap"]
    if training.precision in WHOLE and usual.gradients == "bf16":
        keys = [key for key in keys if key not in ("gradients", "master_gradients")]
    overlap = evolve(training.overlap, **_missing(training.overlap, overlap, fields_dict(Overlap)))
    return evolve(training, overlap=overlap, **_missing(training, usual, keys))


def _missing(written: Any, usual: Any, keys: Iterable[str]) -> dict[str, Any]:
    return {key: getattr(usual, key) for key in keys if getattr(written, key) is None}


def on_stack_of(problem: Problem, target: str, known: Registry) -> Problem:
    """Give a problem the defaults of a framework's own stack, replacing another stack's."""
    training = problem.training
    if problem.model is None or training.stack is None or training.stack == NO_STACK:
        return problem
    before = described(training.stack, known)
    name = next((name for name, stack in known.stacks().items() if target in stack.targets), None)
    if target in before.targets or name is None:
        return problem
    schedules, guessed = known.schedules(), {key.removeprefix("overlap.") for key in training.unknown or ()}
    nothing: dict[str, Any] = {each.name: None for each in fields(StackDefaults) if each.name != "overlap"}
    filled = _filled(evolve(training, overlap=Overlap(), **nothing), before, schedules)

    def said(ours: Any, theirs: Any, names: Iterable[str]) -> dict[str, Any]:
        stated = (key for key in names if key not in guessed and getattr(ours, key) != getattr(theirs, key))
        return {**dict.fromkeys(names), **{key: getattr(ours, key) for key in stated}}

    overlap = Overlap(**said(training.overlap, filled.overlap, fields_dict(Overlap)))
    bare = evolve(training, overlap=overlap, unknown=None, **said(training, filled, nothing))
    return evolve(problem, training=evolve(_filled(bare, described(name, known), schedules), stack=name))


def device_of(cluster: ClusterSpec) -> DeviceSpec | None:
    """Device of a cluster in place, or of the first pool; None: it has none, or an unknown name.

    Unknown names are reported with other errors at formulation.
    """
    if cluster.pools is not None:
        return device_of(cluster.pools[0].cluster)
    named = known_cluster(cluster.name)
    device = cluster.device or (None if named is None else named.device)
    return devices().get(device) if isinstance(device, str) else device


def stack_notice(problem: Problem, written: Mapping[str, Any], known: Registry) -> str | None:
    """Sentence on the implied stack and what it hides; None: the problem names one, or has a profile.

    `problem` has its stack filled in, and its target as `written`.
    """
    if problem.model is None or (written.get("training") or {}).get("stack") is not None:
        return None
    asked = (problem.search.framework, problem.training.precision, problem.decided.get("zero"))
    usual = implied(*asked, device_of(problem.cluster), known)
    if usual is None:
        return None
    decided = problem.decided.get("schedule")
    allowed = problem.training.schedule if decided is None else (str(decided),)
    words = overlap_words(problem.training.overlap, hidden_messages(problem.training, allowed, known))
    return f"Assuming {usual.name}: {words}."


def overlap_words(overlap: Overlap, schedules: Sequence[str]) -> str:
    """Say which communication overlaps with compute; pipeline messages do under `schedules`."""
    words = {"DP": overlap.data, "TP": overlap.tensor, "EP": overlap.experts, f"PP ({listed(schedules)})": schedules}
    return f"{listed([word for word, hidden in words.items() if hidden]) or 'no'} communication overlaps with compute"


def data_parallel_exposure(training: Training, device: DeviceSpec | None, modelled: bool = True) -> Exposure:
    """Exposure from `training`; with a model, missing parts come from the device's calibration.

    If a framework overlaps it (`overlap.data`), a model's hides under its compute as far as that lasts, except for the
    share that a calibration found exposed; else ranks wait for each other. A profile keeps the constants of PROBLEM.md
    section 4 unless it asks for others.
    """
    exposed, often, hiding, waiting, sharded = training.exposed_share, None, False, 1.0, 1.0
    if modelled and training.exposed is None:
        terms = Coefficients() if device is None else device.calibration
        hiding = bool(training.overlap.data)
        often = terms.gathers_exposed if hiding else None
        once = terms.gathers_exposed if training.reductions == "layers" else terms.data_exposed
        exposed = once if hiding else 1.0
        if not hiding and training.synchronisation is None:
            waiting, sharded = terms.synchronisation, terms.sharded_synchronisation
    return Exposure(
        exposed,
        hiding if training.hiding is None else training.hiding,
        waiting if training.synchronisation is None else training.synchronisation,
        sharded if training.sharded_synchronisation is None else training.sharded_synchronisation,
        often,
    )


def hidden_messages(training: Training, schedules: Iterable[str], known: Registry) -> tuple[str, ...]:
    """Allowed schedules with which messages between stages hide under compute (`overlap.pipeline`).

    Raises:
        InputError: one that is listed is no schedule.
    """
    hiding, allowed = training.overlap.pipeline, dict.fromkeys(schedules)
    if not isinstance(hiding, tuple):
        return tuple(allowed) if hiding else ()
    every = {*known.schedules(), *known.missing("schedules")}
    unknown = next((name for name in hiding if name not in every), None)
    if unknown is not None:
        raise unknown_name("training.overlap.pipeline", "schedule", unknown, every)
    return tuple(name for name in allowed if name in hiding)
