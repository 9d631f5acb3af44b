"""A check over every sweep: a cluster with more bandwidth or memory, all else equal, is not slower."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy

from nest.catalogue import link
from nest.errors import InputError, Steps
from nest.io import steps_of
from nest.public.planning import likely_enough
from nest.tolerances import AGREEMENT
from nest.units import Bytes, BytesPerSecond, parse
from nest_studies.sweep.points import Points, problem_at, value_at

MOST_TOLD = 5
"""Contradictions told of one sweep: one shows the bug."""

Row = Mapping[str, Any]


def contradictions(points: Points, rows: Sequence[Row]) -> Iterator[str]:
    """Pairs of points of which the better cluster is slower, or has no plan where the other has one.

    A plan of the worse cluster is one of the better, and takes no longer there (docs/explanation/proofs.md). One that
    is less likely to fit than those searched there may be faster. Points whose search was ended are held to the bound
    that they prove.
    """
    paths = {path: steps_of(path) or () for path in points.columns if _more_is_better(path) is not None}
    if not paths:
        return
    groups: dict[str, list[tuple[int, list[float]]]] = {}
    for index, row in enumerate(rows):
        if row["status"] != "infeasible" and row.get("batch_time") is None:
            continue
        known = _figures(problem_at(points.base, points.values[index]), paths)
        if known is not None:
            groups.setdefault(known[0], []).append((index, known[1]))
    told = 0
    for group in groups.values():
        for worse, better in _slower_pairs(group, rows):
            if told == MOST_TOLD:
                return
            told += 1
            yield _sentence(rows, worse, better, [path for path in paths if path in points.columns])


def _more_is_better(path: str) -> object | None:
    """The quantity of a key of which more makes a cluster no slower; None: it is none."""
    if path == "cluster.memory":
        return Bytes
    return BytesPerSecond if path.startswith("cluster.") and path.endswith("bandwidth") else None


def _figures(problem: Mapping[str, Any], paths: Mapping[str, Steps]) -> tuple[str, list[float]] | None:
    """All that is else in a problem, and the figures by which clusters are compared; None: they cannot be.

    The bandwidth of a level may say which generation of its link it is, and another one has other figures.
    """
    values: list[float] = []
    for path, steps in paths.items():
        holder = value_at(problem, steps[:-1])
        named = holder.get("link") if isinstance(holder, dict) else None
        try:
            if isinstance(named, str) and steps[-1] == "bandwidth" and link(named).generations:
                return None
            values.append(parse(value_at(problem, steps), _more_is_better(path)))
        except (InputError, ValueError):
            return None
    return json.dumps(_without(problem, list(paths.values())), sort_keys=True), values


def _without(item: Any, paths: Sequence[Steps]) -> Any:
    """A copy of `item` without what paths lead to."""
    if not paths or not isinstance(item, (dict, list)):
        return item
    rows = item.items() if isinstance(item, dict) else enumerate(item)
    kept = {
        str(step): _without(each, [path[1:] for path in paths if path[:1] == (step,)])
        for step, each in rows
        if (step,) not in paths
    }
    return kept if isinstance(item, dict) else list(kept.values())


def _slower_pairs(group: Sequence[tuple[int, list[float]]], rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """Indices of rows, worse cluster and better, of which the better is slower for certain."""
    figures = numpy.array([each for _, each in group])
    indices = numpy.array([index for index, _ in group])
    times = numpy.array([_number(rows[index].get("batch_time")) for index in indices])
    bounds = numpy.array([_bound(rows[index]) for index in indices])
    daring = numpy.array([_at_even_odds(rows[index]) for index in indices])
    for place, index in enumerate(indices):
        worse = (figures <= figures[place]).all(axis=1) & (figures < figures[place]).any(axis=1)
        worse &= daring[place] | ~daring  # What is less likely to fit may be faster.
        for other in numpy.flatnonzero(worse & (bounds[place] > times * (1 + AGREEMENT))):
            yield int(indices[other]), int(index)


def _number(value: float | None) -> float:
    return numpy.inf if value is None else value


def _at_even_odds(row: Row) -> bool:
    """Return whether a problem that leaves its memory risk open was searched at even odds."""
    return row["status"] == "infeasible" or not likely_enough(row.get("fit_probability"))


def _bound(row: Row) -> float:
    """Time that no plan of a row undercuts; without a plan, infinite."""
    return numpy.inf if row["status"] == "infeasible" else row.get("lower_bound") or 0.0


def _sentence(rows: Sequence[Row], worse: int, better: int, paths: Sequence[str]) -> str:
    more = [path for path in paths if rows[worse].get(path) != rows[better].get(path)]
    shown = ", ".join(f"{path} {rows[better].get(path)} for {rows[worse].get(path)}" for path in more)
    now, before = rows[better].get("batch_time"), rows[worse]["batch_time"]
    slower = "it has no plan" if now is None else f"its best plan takes {now:g} s for {before:g} s"
    return (
        f"row {better + 1} is row {worse + 1} on a better cluster ({shown}), but {slower}. This is a bug in nest; "
        "please report it with the study."
    )
