"""Rows of a sweep as Parquet, CSV or lines of JSON; nothing is written before all of it can be."""

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from nest.errors import InputError
from nest.io import check_writable, replacing

Row = Mapping[str, Any]

ROWS_TOGETHER = 500
"""Rows of Parquet that are in memory at a time, each with its plan of some 10 kB."""


def is_result(path: Path) -> bool:
    """Return whether a file's name says that it has rows of a sweep."""
    return path.suffix in (".parquet", ".csv", ".jsonl")


def check_output(path: Path, *read: Path) -> None:
    """Make sure, before hours are spent, that rows can be written to `path`.

    Raises:
        InputError: its suffix says no format, what writes it is not installed, or no file can be there.
    """
    _writer(path)
    check_writable(path, *read)


def write_rows(path: Path, columns: Sequence[str], types: Mapping[str, str], rows: Iterable[Row]) -> None:
    """Put rows at `path` in one step, in the format that its suffix says.

    Args:
        path: ends with `.parquet`, `.csv` or `.jsonl`.
        columns: of every row.
        types: what a column's values are, of `integer`, `number`, `truth` and `text`; those left out are text.
        rows: in their order; a key that is missing has no value.

    Raises:
        InputError: it cannot be written.
    """
    write = _writer(path)
    with replacing(path) as temporary:
        write(temporary, columns, types, rows)


def _writer(path: Path) -> Callable[[Path, Sequence[str], Mapping[str, str], Iterable[Row]], None]:
    writers = {".parquet": _parquet, ".csv": _csv, ".jsonl": _json_lines}
    if path.suffix not in writers:
        raise InputError(f"--output {path}: the name must end with .parquet, .csv or .jsonl.")
    if path.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise InputError(
                f"--output {path}: writing Parquet needs pyarrow; install it with `pip install 'nest-planner[sweep]'`, "
                "or write .csv or .jsonl."
            ) from None
    return writers[path.suffix]


def _json_lines(path: Path, columns: Sequence[str], types: Mapping[str, str], rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for row in rows:
            stream.write(_json({name: row.get(name) for name in columns}) + "\n")


def _csv(path: Path, columns: Sequence[str], types: Mapping[str, str], rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_text(row.get(name)) for name in columns])


def _parquet(path: Path, columns: Sequence[str], types: Mapping[str, str], rows: Iterable[Row]) -> None:
    import pyarrow
    from pyarrow import parquet

    made = {"integer": pyarrow.int64(), "number": pyarrow.float64(), "truth": pyarrow.bool_()}
    schema = pyarrow.schema([(name, made.get(types.get(name, ""), pyarrow.string())) for name in columns])
    waiting = iter(rows)
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := list(islice(waiting, ROWS_TOGETHER)):
            writer.write_table(
                pyarrow.Table.from_arrays([_array(pyarrow, each, some) for each in schema], schema=schema)
            )


def _array(pyarrow: Any, column: Any, rows: Sequence[Row]) -> Any:
    values = [row.get(column.name) for row in rows]
    if column.type == pyarrow.string():
        values = [_text(value) for value in values]
    return pyarrow.array(values, column.type)


def _text(value: Any) -> str | None:
    """A value as text: what is no text already as JSON, None as nothing."""
    return value if value is None or isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def type_of(values: Iterable[Any]) -> str:
    """Type of a column of such values: `integer`, `number`, `truth` or `text`; None is none."""
    kinds = {_kind(value) for value in values if value is not None}
    if kinds == {"integer", "number"}:
        return "number"
    return kinds.pop() if len(kinds) == 1 else "text"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int):
        return "integer" if abs(value) < 2**63 else "text"
    return "number" if isinstance(value, float) else "text"
