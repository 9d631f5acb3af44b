"""Operators to measure by kind and sizes, with their FLOP and memory traffic."""

from math import prod
from pathlib import Path

from attrs import field, frozen

from nest.errors import FieldError, FieldErrors
from nest.spec.measurements import DIRECTIONS, OPERATORS, shape_errors
from nest.spec.validators import above, not_empty, one_of
from nest.units import Bytes

ONE_WAY = ("embedding", "update", "copy", "launch")
"""Kinds whose forward pass alone is measured."""

ADAM_BYTES = 28
"""Bytes an Adam step moves for each parameter in single precision: gradient read, parameter and two moments read and
written (Kingma and Ba, arXiv 1412.6980, algorithm 1)."""

INDEX_BYTES = 8
"""Bytes of an index into a table (PyTorch's int64)."""

LARGEST_TABLE = 32_768
"""Rows of the table that look-ups are measured in, unless the shape says."""


@frozen
class Experiment:
    """One operator to be measured.

    Attributes:
        kind: as `OperatorMeasurement.kind`.
        shape: as `OperatorMeasurement.shape`.
        direction: `forward` or `backward`.
        bytes: to be moved by a `copy`, half of them read.
    """

    kind: str = field(validator=one_of(tuple(OPERATORS)))
    shape: dict[str, int | bool] = field(factory=dict)
    direction: str = field(default="forward", validator=one_of(DIRECTIONS))
    bytes: Bytes | None = field(default=None, validator=above(1))

    def __attrs_post_init__(self) -> None:
        errors = list(shape_errors(self.kind, self.shape))
        if self.kind == "copy" and self.bytes is None:
            errors.append(FieldError(("bytes",), "is missing; a copy is measured at so many"))
        if self.kind != "copy" and self.bytes is not None:
            errors.append(FieldError(("bytes",), f"follow from the shape of {self.kind}; leave them out"))
        if self.direction == "backward" and self.kind in ONE_WAY:
            errors.append(FieldError(("direction",), f"of {self.kind} is forward"))
        if errors:
            raise FieldErrors(errors)

    def size(self, name: str, default: int = 1) -> int:
        """The size called `name`; `default` where the shape leaves it out."""
        return int(self.shape.get(name, default))

    @property
    def flops(self) -> float:
        """Of one run, without what a causal mask saves; attention backward as in arXiv 2307.08691."""
        if self.kind == "matmul":
            forward = 2.0 * prod(self.size(name) for name in ("batch", "rows", "columns", "contracted"))
            return forward * (2 if self.direction == "backward" else 1)
        if self.kind == "attention":
            sequence, head = self.size("sequence"), self.size("head")
            channels = head + self.size("value", head)
            pairs = self.size("batch") * self.size("heads") * sequence * self.size("keys", sequence)
            return 2.0 * pairs * channels * (2.5 if self.direction == "backward" else 1)
        return 0.0

    def moved(self, itemsize: int) -> float | None:
        """Bytes read and written by one run, each tensor once; None for kinds that memory does not bound.

        Args:
            itemsize: bytes of an element.
        """
        numbers = self.size("rows") * self.size("width") * itemsize
        backward = self.direction == "backward"
        if self.kind in ("norm", "softmax"):
            return numbers * (3 if backward else 2)
        if self.kind == "elementwise":
            return numbers * (6 if backward else 3)
        if self.kind == "activation":
            branches = self.size("branches")
            return numbers * (2 * branches + 1 if backward else branches + 1)
        if self.kind == "embedding":
            return 2 * numbers + INDEX_BYTES * self.size("rows")
        if self.kind == "update":
            return ADAM_BYTES * self.size("parameters")
        return self.bytes

    def held(self, itemsize: int) -> float:
        """Bytes that must be at hand to run it, at most."""
        if self.kind == "matmul":
            rows, columns, inner = (self.size(name) for name in ("rows", "columns", "contracted"))
            operands = self.size("batch") * (rows * inner + columns * inner + rows * columns) * itemsize
            return operands * (2 if self.direction == "backward" else 1)
        if self.kind == "attention":
            tokens = self.size("batch") * max(self.size("sequence"), self.size("keys"))
            width = self.size("heads") * (self.size("head") + self.size("value", self.size("head")))
            return 6.0 * tokens * width * itemsize
        table = self.size("vocab", LARGEST_TABLE) * self.size("width") * itemsize if self.kind == "embedding" else 0
        return table + (self.moved(itemsize) or 0.0)


@frozen
class ExperimentList:
    """The file of `nest profile --shapes`.

    Attributes:
        operators: in the order in which they are measured.
    """

    operators: tuple[Experiment, ...] = field(validator=not_empty)


def read_experiments(path: Path) -> tuple[Experiment, ...]:
    """The experiments in a YAML, JSON or TOML file.

    Raises:
        InputErrors: every mistake found, each with its place.
    """
    from nest.io import read

    return read(path, ExperimentList).operators
