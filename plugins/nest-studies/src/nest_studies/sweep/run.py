"""A sweep: every point that is not answered yet is handed to an engine, and all answers become rows."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from json import dumps, loads
from pathlib import Path
from typing import Any

from attrs import field, frozen

from nest.errors import InputError
from nest.hooks.protocols import Engine
from nest.hooks.registry import Registry
from nest_studies.sweep.journal import Journal, journal_of
from nest_studies.sweep.monotone import contradictions
from nest_studies.sweep.output import check_output, type_of, write_rows
from nest_studies.sweep.point import FAILED, INVALID, Asked, Item, PointSolver, versions
from nest_studies.sweep.points import read_points

LEADING = {
    "key": "text", "status": "text", "reason": "text", "batch_time": "number", "lower_bound": "number", "low": "number",
    "high": "number", "throughput": "number", "tokens_per_second_per_device": "number", "mfu": "number",
    "devices": "integer", "fit_probability": "number", "cost": "number",
}  # fmt: skip
"""Columns behind the varied values and before the degrees, with what they hold."""

OUTER = ("pp", "dp")
"""Degrees of every plan, behind those of strategies."""

TRAILING = ("schedule", "zero", "recompute")
"""Columns behind the degrees."""

PLAN = "plan"
"""The last column: the document."""

Progress = Callable[[int, int], None]
"""Called with how many points are answered, and how many there are."""


@frozen
class SweepResult:
    """Rows and counts of a sweep.

    Attributes:
        columns: of the rows, but for the plan.
        rows: of the points in their order, each without its plan.
        solved: points solved now; the others were answered before, or are no problems.
        contradictions: pairs of points of which the better cluster is slower, a sentence each: bugs.
        warnings: of plug-ins that were disabled.
    """

    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...] = field(repr=False)
    solved: int
    contradictions: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def statuses(self) -> Mapping[str, int]:
        """Number of points of each status."""
        return Counter(row["status"] for row in self.rows)


def run_sweep(
    study: Path, output: Path, engine: Engine, known: Registry, progress: Progress | None = None
) -> SweepResult:
    """Solve every point of a study, and write a row for each.

    Args:
        study: its file.
        output: file of the rows; its suffix says the format. What is found is kept in a journal beside it.
        engine: runs the points.
        known: registered strategies and the like, here; workers look for their own.
        progress: called at the start and after each point.

    Raises:
        InputError: the study cannot be used, or the output not be written.
    """
    points = read_points(study)
    check_output(output, study)
    solver = PointSolver(points.base, points.folder, points.time_limit, versions(known), known.strict, known)
    asked = [solver.asked(values) for values in points.values]
    with Journal(journal_of(output)) as journal:
        waiting = {each.item.key: each for each in asked if each.refusal is None and each.item.key not in journal}
        items = _neighbours_together(waiting.values())
        failed: dict[str, dict[str, Any]] = {}
        warnings: dict[str, None] = {}
        for each in _told(engine.submit(solver, items) if items else (), asked, waiting, progress):
            warnings.update(dict.fromkeys(each.get("warnings", ())))
            if each["row"]["status"] == FAILED:  # Tried again the next time.
                failed[each["key"]] = each
            else:
                journal.append(each["key"], dumps(each, allow_nan=False, ensure_ascii=False))
        if waiting:
            raise InputError(f"--engine {engine.name}: it gave no answer for {len(waiting)} points.")

        def answers() -> Iterator[tuple[dict[str, Any], Any]]:
            for each, values in zip(asked, points.values, strict=True):
                key = each.item.key
                answer = failed.get(key) or ({} if each.refusal else journal.answer(key))
                row = answer.get("row") or {"status": INVALID, "reason": each.refusal}
                yield {**values, "key": key, **row}, answer.get("plan")

        rows = tuple(row for row, _ in answers())
        columns = _columns(points.columns, rows)
        types = {name: LEADING.get(name) or type_of(row.get(name) for row in rows) for name in columns}
        write_rows(output, (*columns, PLAN), types, ({**row, PLAN: plan} for row, plan in answers()))
    return SweepResult(columns, rows, len(items), tuple(contradictions(points, rows)), tuple(warnings))


def _told(
    lines: Iterable[str], asked: Sequence[Asked], waiting: dict[str, Asked], progress: Progress | None
) -> Iterator[dict[str, Any]]:
    """The answers that come, each once; `waiting` loses them, and `progress` counts them."""
    counts = Counter(each.item.key for each in asked)
    done = sum(count for key, count in counts.items() if key not in waiting)
    if progress is not None:
        progress(done, len(asked))
    for line in lines:
        answer: dict[str, Any] = loads(line)
        if waiting.pop(answer["key"], None) is not None:
            yield answer
            done += counts[answer["key"]]
            if progress is not None:
                progress(done, len(asked))


def _neighbours_together(asked: Iterable[Asked]) -> tuple[Item, ...]:
    """Points to solve: those that share graphs and prices one after the other, else in their order.

    Of these, points of more memory go first: the best plan of one is also the others' if it fits.
    """
    groups: dict[str, dict[str, list[Asked]]] = {}
    for each in asked:
        graphs, prices = each.shares
        groups.setdefault(graphs, {}).setdefault(prices, []).append(each)
    alike = (points for group in groups.values() for points in group.values())
    return tuple(each.item for points in alike for each in sorted(points, key=lambda point: -point.memory))


def _columns(varied: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The columns of every row but the plan: `pp` and `dp` behind the degrees of strategies."""
    others = {*varied, *LEADING, *TRAILING, *OUTER}
    degrees = dict.fromkeys(name for row in rows for name in row if name not in others)
    return (*varied, *LEADING, *degrees, *OUTER, *TRAILING)
