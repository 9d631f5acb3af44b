"""Results of sweeps read again: each row with what a page shows of its plan."""

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.instance import recompute_words
from nest.io import steps_of
from nest_studies.sweep.output import is_result
from nest_studies.sweep.points import read_points, value_at

USUALLY_TP = ("sp", "etp")
"""Degrees that rows name if they differ from the tensor-parallel degree."""

FIGURES = ("batch_time", "low", "high", "throughput", "mfu", "cost", "fit_probability")
"""Columns that a `StudyPoint` has as they are."""

NO_RESULT = "not a result of `nest sweep`"


@frozen
class StudyPoint:
    """A row.

    Attributes:
        number: its place in the result, from 1.
        values: what is varied, in the order of the columns, as written; None: left out.
        status: of the row.
        reason: why it has no plan.
        batch_time: seconds; None: it has no plan, as for all that follow.
        low, high: ends of the likely range of the step time, seconds.
        throughput: samples per second.
        tokens: per second.
        mfu: model FLOP utilisation; None: nobody knows, as of a profile.
        devices: that the plan uses.
        memory: bytes that each of them must have.
        cost: of the whole training; None: the problem does not say what is needed to know.
        fit_probability: that no stage runs out of memory.
        plan: what the plan decides, but for how often it is replicated.
        replicas: data-parallel ranks.
        link: where the plan's document is, as the page refers to it; empty: nowhere.
    """

    number: int
    values: tuple[Any, ...]
    status: str
    reason: str = ""
    batch_time: float | None = None
    low: float | None = None
    high: float | None = None
    throughput: float | None = None
    tokens: float | None = None
    mfu: float | None = None
    devices: int | None = None
    memory: float | None = None
    cost: float | None = None
    fit_probability: float | None = None
    plan: str = ""
    replicas: int | None = None
    link: str = ""

    @property
    def anchor(self) -> str:
        """Place of the row on the page."""
        return f"row-{self.number}"


def result_of(study: Path) -> Path:
    """The result of a study among the files beside it: the one that has its keys and as many rows as it has points.

    Raises:
        InputError: there is none, or there are several.
    """
    points = read_points(study)
    found = []
    for path in sorted(each for each in study.parent.iterdir() if is_result(each)):
        try:
            if varied_columns(path) == points.columns and row_count(path) == len(points.values):
                found.append(path)
        except InputError:
            continue
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise InputError(f"{study}: {names} have its rows; name one of them.")
    if not found:
        output = study.with_suffix(".jsonl")
        raise InputError(
            f"{study}: no result file beside it; run `nest sweep {study} --output {output}`, or name the file."
        )
    return found[0]


def varied_columns(path: Path) -> tuple[str, ...]:
    """Varied keys of a result: the columns in front of `key`.

    Raises:
        InputError: it cannot be read, or is no result.
    """
    columns = _columns(path)
    if not {"key", "status", "plan"} <= set(columns):
        raise InputError(f"{path}: {NO_RESULT}; it has no columns `key`, `status` and `plan`.")
    return tuple(columns[: columns.index("key")])


def row_count(path: Path) -> int:
    """Number of rows of a result."""
    return sum(1 for _ in result_rows(path))


def result_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a result one after the other, values as columns have them; `plan` is text, or a mapping.

    Raises:
        InputError: it cannot be read, or is no result.
    """
    readers = {".parquet": _parquet, ".csv": _csv, ".jsonl": _json_lines}
    if path.suffix not in readers:
        raise InputError(f"{path}: results of `nest sweep` end in .parquet, .csv or .jsonl.")
    try:
        yield from readers[path.suffix](path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path}: {NO_RESULT}: {' '.join(str(error).split())}.") from None


def plan_of(path: Path, number: int) -> dict[str, Any]:
    """The plan of a row, counted from 1.

    Raises:
        InputError: there is no such row, or it has no plan.
    """
    varied_columns(path)
    count = 0
    for count, row in enumerate(result_rows(path), 1):
        if count == number:
            plan = _plan(row)
            if plan is None:
                raise InputError(f"{path}: row {number} has no plan: {row.get('reason') or row.get('status')}")
            return plan
    raise InputError(f"{path}: there is no row {number}; it has {count}.")


def study_point(number: int, row: Mapping[str, Any], columns: Sequence[str], link: str) -> StudyPoint:
    """A row as a page has it.

    Args:
        number: its place, from 1.
        row: of a result.
        columns: what varies.
        link: where its plan is written, if it has one.

    Raises:
        ValueError: it is none that a sweep wrote.
    """
    plan = _plan(row)
    problem = {} if plan is None else plan["problem"]
    values = tuple(
        value_at(problem, steps_of(name) or ()) if row[name] in (None, "") else row[name] for name in columns
    )
    if plan is None or not plan.get("stages"):
        return StudyPoint(number, values, row["status"], row.get("reason") or "", link=link if plan else "")
    figures = {name: _number(row.get(name)) for name in FIGURES}
    devices, replicas = _number(row.get("devices")), _number(row.get("dp"))
    return StudyPoint(
        number,
        values,
        row["status"],
        row.get("reason") or "",
        tokens=plan["summary"].get("tokens_per_second"),
        devices=None if devices is None else int(devices),
        memory=max(stage.get("upper_memory") or stage["memory"] for stage in plan["stages"]),
        plan=_decisions(row, plan),
        replicas=None if replicas is None else int(replicas),
        link=link,
        **figures,
    )


def _decisions(row: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """Decisions of a plan in a few words, without the number of replicas."""
    candidate = plan["candidate"]
    told = {name: degree for name, degree in candidate["degrees"].items() if degree != 1}
    told = {name: degree for name, degree in told.items() if name not in USUALLY_TP or degree != told.get("tp")}
    shown = [f"{name} {row[name]}" for name in (*told, "pp") if str(row.get(name)) not in ("1", "None", "")]
    if "tp" in told and candidate["degrees"].get("sp") == 1:
        shown.append("no sp")
    return ", ".join(
        [
            *(shown or ["data parallel alone"]),
            f"micro-batch {candidate.get('micro_batch') or candidate['samples']}",
            str(row["schedule"]),
            f"ZeRO {row['zero']}",
            f"recompute {'/'.join(map(recompute_words, str(row['recompute']).split('/')))}",
        ]
    )


def _plan(row: Mapping[str, Any]) -> dict[str, Any] | None:
    plan = row.get("plan")
    if isinstance(plan, str) and plan:
        plan = json.loads(plan)
    if not plan:
        return None
    if not isinstance(plan, dict) or "problem" not in plan or "status" not in plan:
        raise ValueError("a row's plan is no plan")
    return plan


def _number(value: Any) -> float | None:
    return None if value in (None, "") else float(value)


def _columns(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return list(_open(path).schema_arrow.names)
    return list(next(iter(result_rows(path)), {}))


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("a line is no row")
            yield row


def _csv(path: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # A plan is longer than what is read by default.
    with path.open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    for batch in _open(path).iter_batches(batch_size=500):
        yield from batch.to_pylist()


def _open(path: Path) -> Any:
    try:
        from pyarrow import lib, parquet
    except ImportError:
        raise InputError(
            f"{path}: reading Parquet needs pyarrow; install it with `pip install 'nest-planner[sweep]'`."
        ) from None
    try:
        return parquet.ParquetFile(path)
    except lib.ArrowException as error:
        raise InputError(f"{path}: {NO_RESULT}: {' '.join(str(error).split())}.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}.") from None
