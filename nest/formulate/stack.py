"""`training.stack`: what a problem leaves out, filled in by what its software does (docs/reference/stacks.md)."""

from collections.abc import Collection, Iterable, Mapping
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

PLACE = "training.stack"


class Implied(NamedTuple):
    """The stack of a problem that does not name one.

    Attributes:
        name: of the stack.
        place: the key that implies it.
    """

    name: str
    place: str


def with_stack(problem: Problem, device: DeviceSpec | None, known: Registry, base: Path | None = None) -> Problem:
    """`problem` with each key of `training` that it leaves out as its stack has it, and with the stack that is implied.

    A key of `training` wins over the stack; the usual stack of `device` is implied where neither `training.stack` nor
    `search.target` says. A profile has no stack: its candidates state their times.
    """
    if problem.model is None:
        return problem
    written, place = problem.training.stack, PLACE
    if written is None:
        asked = (problem.search.framework, problem.training.precision, problem.decided.get("zero"))
        usual = implied(*asked, device, known)
        written, place = (NO_STACK, PLACE) if usual is None else (usual.name, usual.place)
    stack = described(written, known, base, place)
    if isinstance(written, str) and is_file_name(written):
        written = stack
    return evolve(problem, training=evolve(_filled(problem.training, stack, known.schedules()), stack=written))


def implied(
    target: str | None, precision: str, zero: object, device: DeviceSpec | None, known: Registry
) -> Implied | None:
    """The stack of `search.target`, else of the training precision, else the device's usual; None: no one's.

    Where ZeRO 3 is fixed (`zero`) and the framework of the usual stack does not run it, the one that stack names.
    """
    names = (name for name, stack in known.stacks().items() if target in stack.targets)
    if target is not None and (name := next(names, None)) is not None:
        return Implied(name, "search.target")
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
    """The stack that `name` stands for: one in place, a registered one, or a file of one; errors name `place`."""
    if isinstance(name, StackSpec):
        return name
    if is_file_name(name):
        path = (base or Path()) / name
        if there_is(path) != "file":
            raise InputError(f"{place}: there is no file {str(path)!r:.200}; `nest stacks` lists the names known.")
        return read(path, StackSpec)
    stacks = known.stacks()
    if name in known.missing("stacks"):
        raise InputError(f"{place}: software stack {name!r} is disabled, so that nobody knows what it does.")
    if name not in stacks:
        raise unknown_name(place, "software stack", name, stacks)
    offered = stacks[name]
    return StackSpec(**{key: getattr(offered, key) for key in fields_dict(StackSpec) if hasattr(offered, key)})


WHOLE = ("fp32", "fp16")
"""Precisions whose parameters are in it: what a stack says of gradients of bf16 parameters is not about them."""


def _filled(training: Training, stack: StackSpec, schedules: Collection[str]) -> Training:
    """`training` with what it leaves out as `stack` has it; `schedules` are those that are known."""
    usual = stack.training
    overlap = usual.overlap
    if overlap.pipeline is None and stack.pipeline_overlap:
        overlap = evolve(overlap, pipeline=tuple(name for name in stack.pipeline_overlap if name in schedules))
    keys = [each.name for each in fields(StackDefaults) if each.name != "overlap"]
    if training.precision in WHOLE and usual.gradients == "bf16":
        keys = [key for key in keys if key not in ("gradients", "master_gradients")]
    left_out = {key: getattr(usual, key) for key in keys if getattr(training, key) is None}
    return evolve(training, overlap=_over(training.overlap, overlap), **left_out)


def _over(written: Overlap, usual: Overlap) -> Overlap:
    """What is written, and else what is usual."""
    left_out = {each.name: getattr(usual, each.name) for each in fields(Overlap) if getattr(written, each.name) is None}
    return evolve(written, **left_out)


def device_of(cluster: ClusterSpec) -> DeviceSpec | None:
    """The device of a cluster in place, of pools the first one's; None: it has none, or one of a name that is unknown.

    That is told with what else is wrong, when the problem is formulated.
    """
    if cluster.pools is not None:
        return device_of(cluster.pools[0].cluster)
    named = known_cluster(cluster.name)
    device = cluster.device or (None if named is None else named.device)
    return devices().get(device) if isinstance(device, str) else device


HIDDEN = {"data": "DP", "tensor": "TP", "experts": "EP"}
"""Communication by the keys of `overlap`, but for `pipeline`, which depends on the schedule."""


def stack_notice(problem: Problem, written: Mapping[str, Any], known: Registry) -> str | None:
    """The stack that was implied and what hides, in a sentence; None: the problem names one, or has a profile.

    The stack of `problem` is filled in, its target as it was `written`.
    """
    if problem.model is None or (written.get("training") or {}).get("stack") is not None:
        return None
    asked = (problem.search.framework, problem.training.precision, problem.decided.get("zero"))
    usual = implied(*asked, device_of(problem.cluster), known)
    if usual is None:
        return None
    hidden = [word for key, word in HIDDEN.items() if getattr(problem.training.overlap, key)]
    decided = problem.decided.get("schedule")
    allowed = problem.training.schedule if decided is None else (str(decided),)
    if schedules := hidden_messages(problem.training, allowed, known):
        hidden.append(f"PP ({listed(schedules)})")
    words = listed(hidden) or "no"
    return f"Assuming {usual.name}: {words} communication overlaps with compute."


def data_parallel_exposure(training: Training, device: DeviceSpec | None, modelled: bool = True) -> Exposure:
    """What `training` says of it; where there is a model, what it leaves out the device's calibration says.

    Where a framework is said to overlap it (`overlap.data`), a model's hides under its compute as far as that lasts,
    but for the share that a calibration found exposed; where it is not, ranks wait for each other. A profile keeps the
    constants of PROBLEM.md section 4 unless it asks for others.
    """
    exposed, often, hiding, waiting, sharded = training.exposed_share, None, False, 1.0, 1.0
    if modelled and training.exposed is None:
        terms = Coefficients() if device is None else device.calibration
        hiding = bool(training.overlap.data)
        exposed = terms.data_exposed if hiding else 1.0
        often = terms.gathers_exposed if hiding else None
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
    """The schedules of those allowed with which messages between stages hide under compute (`overlap.pipeline`).

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
