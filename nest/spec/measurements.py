"""What was measured on real machines: operators, collectives and whole training runs, a JSON line each."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from nest.errors import FieldError, FieldErrors
from nest.records import Record
from nest.spec.problem import Problem
from nest.spec.training import PRECISIONS
from nest.spec.validators import above, at_least, each, not_empty, one_of
from nest.units import Bytes, BytesPerSecond, Seconds

DIRECTIONS = ("forward", "backward")


@frozen(eq=False, repr=False)
class Sizes(Record):
    """What the shape of one kind of operator says.

    Attributes:
        required: sizes that must be there, in the order of documents.
        optional: sizes that may be there.
        truths: what is true or false.
        moves: whether the bytes the operator reads and writes must be said.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    truths: tuple[str, ...] = ()
    moves: bool = False


_ROWS = Sizes(("rows", "width"), moves=True)

OPERATORS: Mapping[str, Sizes] = {
    "matmul": Sizes(("batch", "rows", "columns", "contracted")),
    "attention": Sizes(("batch", "heads", "kv_heads", "head", "sequence"), ("keys", "value"), ("causal",)),
    "norm": _ROWS,
    "elementwise": _ROWS,
    "activation": Sizes(("rows", "width"), ("branches",), moves=True),
    "softmax": _ROWS,
    "embedding": Sizes(("rows", "width"), ("vocab",), moves=True),
    "update": Sizes(("parameters",), moves=True),
    "copy": Sizes((), moves=True),
    "launch": Sizes(()),
}
"""Kinds of operator that can be measured, and the sizes each is measured at."""

COLLECTIVE_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point")
"""Kinds of collective; `nest.graph` has the same, which no specification imports."""


def shape_errors(kind: str, shape: Mapping[str, int | bool]) -> Iterator[FieldError]:
    """What is wrong with `shape` as that of an operator of `kind`, one of `OPERATORS`."""
    sizes = OPERATORS[kind]
    names = (*sizes.required, *sizes.truths, *sizes.optional)
    sentence = f"the shape of {kind} has {', '.join(names) or 'no sizes'}"
    for name in (*sizes.required, *sizes.truths):
        if name not in shape:
            yield FieldError(("shape", name), f"is missing; {sentence}")
    for name, size in shape.items():
        if name not in names:
            yield FieldError(("shape", name), f"is no size; {sentence}")
        elif isinstance(size, bool) is not (name in sizes.truths):
            wanted = "true or false" if name in sizes.truths else "a whole number"
            yield FieldError(("shape", name), f"must be {wanted}, is {str(size).lower()}")
        elif not isinstance(size, bool) and size < 1:
            yield FieldError(("shape", name), f"must be at least 1, is {size}")
    if shape.get("heads", 1) % (shape.get("kv_heads", 1) or 1):
        yield FieldError(("shape", "kv_heads"), "must divide heads")


@frozen(eq=False, repr=False)
class OperatorMeasurement(Record):
    """The time one operator took on one device.

    Attributes:
        nest: version of the format.
        measurement: `operator`.
        kind: what ran: `matmul`, `attention`, `norm`, `elementwise`, `activation`, `softmax`, `embedding`, `update` (an
            optimizer step), `copy` (of memory, on the device) or `launch` (a kernel too small to take time itself).
        shape: sizes by name, which depend on the kind; for attention also whether it is causal.
        precision: number format it ran in.
        seconds: time of one run, the median over the repeats.
        direction: `forward`, or `backward` without the forward pass.
        bytes: read and written, for the kinds that memory bounds.
        spread: distance between the quartiles of the repeats, over their median.
        repeats: how often it was timed.
        cold: whether caches held none of its operands before each run.
        device: name of the device it ran on, as its driver gives it.
        date: the day, as 2026-11-21.
        versions: of the software, by name.
    """

    nest: int = field(validator=one_of((1,)))
    measurement: str = field(validator=one_of(("operator",)))
    kind: str = field(validator=one_of(tuple(OPERATORS)))
    precision: str = field(validator=one_of(PRECISIONS))
    seconds: Seconds = field(validator=above(0))
    shape: dict[str, int | bool] = field(factory=dict, validator=each(at_least(0)))
    direction: str = field(default="forward", validator=one_of(DIRECTIONS))
    bytes: Bytes | None = field(default=None, validator=above(0))
    spread: float | None = field(default=None, validator=at_least(0))
    repeats: int = field(default=1, validator=at_least(1))
    cold: bool = False
    device: str | None = field(default=None, validator=not_empty)
    date: str | None = None
    versions: dict[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        errors = list(shape_errors(self.kind, self.shape))
        if OPERATORS[self.kind].moves and self.bytes is None:
            errors.append(FieldError(("bytes",), f"is missing; {self.kind} is measured with the bytes it moves"))
        if errors:
            raise FieldErrors(errors)

    def size(self, name: str, default: int = 1) -> int:
        """The size called `name`; `default` where the shape leaves it out."""
        return int(self.shape.get(name, default))


@frozen(eq=False, repr=False)
class CollectiveMeasurement(Record):
    """The time one collective took among several devices.

    Attributes:
        nest: version of the format.
        measurement: `collective`.
        kind: the call.
        bytes: the full (unsharded) buffer; for `all_to_all` what each member holds, for `point_to_point` what is sent
            (PROBLEM.md section 1).
        members: devices that take part.
        seconds: from the start of the slowest member to its end, the median over the repeats.
        nodes: machines the members are spread over, evenly.
        precision: number format of the elements; None: it is not said.
        link: name of the link between members, of the catalogue; on several machines of that between these; None: it is
            not said.
        spread: distance between the quartiles of the repeats, over their median.
        repeats: how often it was timed.
        device: name of the devices, as their driver gives it.
        date: the day, as 2026-11-21.
        versions: of the software, by name.
        inside: on several machines, name of the link inside each; None: the device tells.
        bandwidth: nominal bytes per second of `link`, per device and direction; None: that of the catalogue.
        source: where the figure was read; None: it was measured for this file.
    """

    nest: int = field(validator=one_of((1,)))
    measurement: str = field(validator=one_of(("collective",)))
    kind: str = field(validator=one_of(COLLECTIVE_KINDS))
    bytes: Bytes = field(validator=above(0))
    members: int = field(validator=at_least(2))
    seconds: Seconds = field(validator=above(0))
    nodes: int = field(default=1, validator=at_least(1))
    precision: str | None = field(default=None, validator=one_of(PRECISIONS))
    link: str | None = field(default=None, validator=not_empty)
    spread: float | None = field(default=None, validator=at_least(0))
    repeats: int = field(default=1, validator=at_least(1))
    device: str | None = field(default=None, validator=not_empty)
    date: str | None = None
    versions: dict[str, str] = field(factory=dict)
    inside: str | None = field(default=None, validator=not_empty)
    bandwidth: BytesPerSecond | None = field(default=None, validator=above(0))
    source: str | None = field(default=None, validator=not_empty)

    def __attrs_post_init__(self) -> None:
        if self.members % self.nodes:
            sentence = f"is {self.nodes}, which does not divide {self.members} members"
            raise FieldError(("nodes",), sentence)


@frozen(eq=False, repr=False)
class RunFigures(Record):
    """What was seen of a training run.

    Attributes:
        batch_time: seconds of one optimizer step; None: it ran out of memory, or its time was not measured.
        peak_memory: bytes, on the fullest device; None: it was not measured.
        memory_kind: text that begins with `reserved` or `allocated`, or has `max_memory_reserved` or
            `max_memory_allocated` in it, where PyTorch's allocator was asked; any other: all that the device holds.
        fits: whether it had memory enough; None: it is not said, and since it ran, it had.
    """

    batch_time: Seconds | None = field(default=None, validator=above(0))
    peak_memory: Bytes | None = field(default=None, validator=above(0))
    memory_kind: str | None = None
    fits: bool | None = None

    def __attrs_post_init__(self) -> None:
        if self.batch_time is None and self.peak_memory is None and self.fits is not False:
            sentence = "is missing; only runs that ran out of memory (fits: false) or have a peak_memory go without."
            raise FieldError(("batch_time",), sentence)


@frozen(eq=False, repr=False)
class RunMeasurement(Record):
    """The step time of one training run.

    Attributes:
        problem: model, cluster and training, with the decisions taken under `fixed`.
        measured: what was seen.
        family: runs that share what one measurement could not tell apart: model, device and software. Validation
            never fits to one run of a family to predict another.
        group: runs of one source, for tables of errors.
        id: unique among the runs.
        nest: version of the format.
        measurement: `run`.
        tier: how much is known about it, for tables of errors; `A` where all that matters is stated.
        core: whether it belongs to the few that are always reported.
        source: where it was published.
        notes: for people.
        peer: what another tool predicted for it.
        stated: facts of the source for which problems have no key.
    """

    problem: Problem
    measured: RunFigures
    family: str = ""
    group: str = ""
    id: str = ""
    nest: int = field(default=1, validator=one_of((1,)))
    measurement: str = field(default="run", validator=one_of(("run",)))
    tier: str = ""
    core: bool = False
    source: dict[str, Any] = field(factory=dict)
    notes: str | None = None
    peer: dict[str, Any] = field(factory=dict)
    stated: dict[str, Any] = field(factory=dict)


Measurement = OperatorMeasurement | CollectiveMeasurement | RunMeasurement

_CLASSES: Mapping[str, type[Measurement]] = {
    "operator": OperatorMeasurement,
    "collective": CollectiveMeasurement,
    "run": RunMeasurement,
}


def measurement_class(line: Mapping[str, Any]) -> type[Measurement]:
    """The class of the measurement that `line` holds: what `measurement` says, or a run where it has a problem.

    Raises:
        FieldError: the line does not tell.
    """
    kind = line.get("measurement", "run" if "problem" in line else None)
    if kind is None:
        raise FieldError(("measurement",), f"is missing; give one of {', '.join(_CLASSES)}")
    if not isinstance(kind, str) or kind not in _CLASSES:
        raise FieldError(("measurement",), f"must be one of {', '.join(_CLASSES)}, is {kind!r:.60}")
    return _CLASSES[kind]


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """The measurements in a file of JSON lines, in the order of its lines.

    Raises:
        InputErrors: every mistake found, each with file, line, path and remedy.
    """
    return tuple(measurement for _, measurement in numbered_measurements(path))


def numbered_measurements(path: Path) -> tuple[tuple[int, Measurement], ...]:
    """The measurements in a file of JSON lines, each after the number of its line; errors as of `read_measurements`."""
    from nest.io.reading import read_records

    return read_records(path, measurement_class)
