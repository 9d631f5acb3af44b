"""Tables of measured operators: what people write, and looking an operator up."""

import csv
import io
from collections.abc import Iterator, Mapping
from functools import cached_property
from math import log
from pathlib import Path
from typing import Any

from attrs import field, frozen

from nest.errors import FieldError, FieldErrors, InputError
from nest.io import read, structure
from nest.spec.validators import above, at_least, each, not_empty
from nest.units import Seconds
from nest_measured.sizes import completed, size_names, work

CSV_COLUMNS = ("kind", "forward", "backward", "precision", "samples")
"""Columns of a table as CSV; every other column is a size."""


@frozen
class Row:
    """One kind of operator at one size.

    Attributes:
        kind: as in nest's operator graphs: `matmul`, `attention`, `norm`, ...
        sizes: of what one device runs, by name (`nest_measured.sizes`).
        forward: seconds.
        backward: seconds; None: not measured, and then in proportion to the forward pass as the default model has it.
        precision: number format it ran in, as `training.precision` names it; None: any.
        samples: measurements behind the figures.
    """

    kind: str
    sizes: dict[str, int] = field(validator=each(at_least(1)))
    forward: Seconds = field(validator=above(0))
    backward: Seconds | None = field(default=None, validator=above(0))
    precision: str | None = None
    samples: int = field(default=1, validator=at_least(1))

    def __attrs_post_init__(self) -> None:
        names = size_names(self.kind)
        whole = completed(self.kind, self.sizes)
        errors = [FieldError(("sizes",), f"lacks {name}; {self._told(names)}") for name in names if name not in whole]
        strange = (name for name in self.sizes if name not in names)
        errors += [FieldError(("sizes", name), f"is no size; {self._told(names)}") for name in strange]
        if errors:
            raise FieldErrors(errors)

    def _told(self, names: tuple[str, ...]) -> str:
        return f"the sizes of {self.kind!r:.40} are {', '.join(names)}"

    @cached_property
    def whole_sizes(self) -> dict[str, int]:
        """Every size."""
        return completed(self.kind, self.sizes)


@frozen(slots=False)
class Table:
    """Measured operators of one device.

    Attributes:
        operators: at least one.
        device: name of the device they ran on; None: it is not said.
    """

    operators: tuple[Row, ...] = field(validator=not_empty)
    device: str | None = None

    @cached_property
    def precisions(self) -> frozenset[str]:
        """The number formats it is for; none: any."""
        named = {row.precision for row in self.operators}
        return frozenset() if None in named else frozenset(name for name in named if name is not None)

    @cached_property
    def _by_kind(self) -> Mapping[tuple[str, int], tuple[Row, ...]]:
        found: dict[tuple[str, int], list[Row]] = {}
        for row in self.operators:
            found.setdefault((row.kind, row.whole_sizes.get("groups", 1)), []).append(row)
        return {kind: tuple(rows) for kind, rows in found.items()}

    def nearest(self, kind: str, sizes: Mapping[str, int], precision: str) -> tuple[Row, float] | None:
        """The nearest measurement and the factor that its times are scaled by; None outside the measured range.

        Each size must lie between the smallest and the largest that was measured of the kind, in this precision and
        with as many groups. Near is near in the logarithms of sizes; of two that are as near, the smaller counts, then
        the first. The factor is the ratio of work: of FLOP, or of bytes where operators are bound by memory.
        """
        rows = self._by_kind.get((kind, sizes.get("groups", 1)), ())
        rows = tuple(row for row in rows if row.precision in (None, precision))
        if not rows or not all(
            min(row.whole_sizes[name] for row in rows) <= size <= max(row.whole_sizes[name] for row in rows)
            for name, size in sizes.items()
        ):
            return None
        best = min(rows, key=lambda row: (_distance(row.whole_sizes, sizes), work(kind, row.whole_sizes)))
        return best, work(kind, sizes) / work(kind, best.whole_sizes)


def _distance(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    return sum(log(one[name] / size) ** 2 for name, size in other.items())


def read_table(path: Path) -> Table:
    """The table in a CSV, JSON or YAML file.

    Raises:
        InputErrors: every mistake found, each with its place.
    """
    if path.suffix.lower() != ".csv":
        return read(path, Table)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    try:
        return structure({"operators": list(_csv_rows(text))}, Table)
    except InputError as error:
        raise InputError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


def _csv_rows(text: str) -> Iterator[dict[str, Any]]:
    for line in csv.DictReader(io.StringIO(text)):
        cells = {name: cell.strip() for name, cell in line.items() if name and isinstance(cell, str) and cell.strip()}
        row: dict[str, Any] = {name: _value(cells[name]) for name in CSV_COLUMNS if name in cells}
        row["sizes"] = {name: _value(cell) for name, cell in cells.items() if name not in CSV_COLUMNS}
        yield row


def _value(cell: str) -> Any:
    """A cell as a number where it is one."""
    for number in (int, float):
        try:
            return number(cell)
        except ValueError:
            continue
    return cell
