"""Measurements on real machines: operators, collectives and training runs, a JSON line each."""

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
    """Sizes in the shape of one kind of operator.

    Attributes:
        required: mandatory sizes, in the order of documents.
        optional: optional sizes.
        truths: booleans.
        moves: whether the bytes read and written are mandatory.
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
"""Kinds of operator that can be measured, with their sizes."""

COLLECTIVE_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point")
"""Kinds of collective; `nest.graph` has the same, but no specification imports it."""


def shape_errors(kind: str, shape: Mapping[str, int | bool]) -> Iterator[FieldError]:
    """Faults of `shape` for an operator of `kind`, one of `OPERATORS`."""
    sizes = OPERATORS[kind]
    names = (*sizes.required, *sizes.truths, *sizes.optional)
    sentence = f"the shape of {kind} has {', '.join(names) or 'no sizes'}"
    for name in (*sizes.required, *sizes.truths):
        if name not in shape:
            yield FieldError(("shape", name), f"is missing; {sentence}")
    for name, size in shape.items():
        if name not in names:
            yield FieldError(("shape", name), f"is not a size; {sentence}")
        elif isinstance(size, bool) is not (name in sizes.truths):
            wanted = "true or false" if name in sizes.truths else "a whole number"
            yield FieldError(("shape", name), f"must be {wanted}, is {str(size).lower()}")
        elif not isinstance(size, bool) and size < 1:
            yield FieldError(("shape", name), f"must be at least 1, is {size}")
    if shape.get("heads", 1) % (shape.get("kv_heads", 1) or 1):
        yield FieldError(("shape", "kv_heads"), "must divide heads")


@frozen(eq=False, repr=False)
class OperatorMeasurement(Record):
    """Measured time of one operator on one device.

    Attributes:
        nest: version of the format.
        measurement: `operator`.
        kind: `matmul`, `attention`, `norm`, `elementwise`, `activation`, `softmax`, `embedding`, `update` (an optimizer
            step), `copy` (of memory, on the device) or `launch` (a kernel too small to take time itself).
        shape: sizes by name, which depend on the kind; for attention also whether it is causal.
        precision: number format.
        seconds: time of one run, the median over the repeats.
        direction: `forward`, or `backward` without the forward pass.
        bytes: read and written, for memory-bound kinds.
        spread: distance between the quartiles of the repeats, over their median.
        repeats: number of timed runs.
        cold: whether caches held none of its operands before each run.
        device: name of the device from its driver.
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
        """Size of that name, or `default`."""
        return int(self.shape.get(name, default))


@frozen(eq=False, repr=False)
class CollectiveMeasurement(Record):
    """Measured time of one collective among several devices.

    Attributes:
        nest: version of the format.
        measurement: `collective`.
        kind: the call.
        bytes: the full (unsharded) buffer; for `all_to_all` each member's, for `point_to_point` the message
            (PROBLEM.md section 1).
        members: participating devices.
        seconds: from the start of the slowest member to its end, the median over the repeats.
        nodes: machines with equal shares of the members.
        precision: number format of the elements; None: unknown.
        link: name of the link between members, of the catalogue; on several machines, between these; None: unknown.
        spread: distance between the quartiles of the repeats, over their median.
        repeats: number of timed runs.
        device: name of the devices from their driver.
        date: the day, as 2026-11-21.
        versions: of the software, by name.
        inside: on several machines, name of the link inside each; None: from the device.
        bandwidth: nominal bytes per second of `link`, per device and direction; None: the catalogue's.
        source: of the figure; None: measured for this file.
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
    """Measured figures of a training run.

    Attributes:
        batch_time: seconds of one optimizer step; None: out of memory, or not measured.
        peak_memory: bytes, on the fullest device; None: not measured.
        memory_kind: text that begins with `reserved` or `allocated`, or contains `max_memory_reserved` or
            `max_memory_allocated`, for figures of PyTorch's allocator; otherwise all memory in use on the device.
        fits: whether memory sufficed; None: unstated, and since it ran, it did.
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
    """Measured step time of one training run.

    Attributes:
        problem: model, cluster and training, with the decisions under `fixed`.
        measured: the figures.
        family: runs that share model, device and software. Validation never fits to one run of a family to predict
            another.
        group: runs of one source, for tables of errors.
        id: unique among the runs.
        nest: version of the format.
        measurement: `run`.
        tier: completeness of the description, for tables of errors; `A` if all relevant facts are stated.
        core: whether it belongs to the few that are always reported.
        source: publication.
        notes: for people.
        peer: another tool's prediction.
        stated: facts of the source without a key in problems.
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
    """Class of the measurement in `line`: from `measurement`, or a run if it has a problem.

    Raises:
        FieldError: unknown.
    """
    kind = line.get("measurement", "run" if "problem" in line else None)
    if kind is None:
        raise FieldError(("measurement",), f"is missing; give one of {', '.join(_CLASSES)}")
    if not isinstance(kind, str) or kind not in _CLASSES:
        raise FieldError(("measurement",), f"must be one of {', '.join(_CLASSES)}, is {kind!r:.60}")
    return _CLASSES[kind]


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """Read measurements from JSON lines, in order.

    Raises:
        InputErrors: every mistake found, each with file, line, path and remedy.
    """
    return tuple(measurement for _, measurement in numbered_measurements(path))


def numbered_measurements(path: Path) -> tuple[tuple[int, Measurement], ...]:
    """Read measurements from JSON lines, with line numbers; errors as in `read_measurements`."""
    from nest.io.reading import read_records

    return read_records(path, measurement_class)
