"""The points of a study: which values the keys of its base problem take, in the order of its rows."""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from attrs import field, frozen

from nest.catalogue import known_cluster
from nest.errors import FieldError, FieldErrors, InputError, Steps, dotted
from nest.io import read_mapping, steps_of, structure, structure_source, unstructure
from nest.io.structuring import converter
from nest.public.questions import with_levels
from nest.spec import ClusterSpec, Problem, Study

MOST_POINTS = 100_000
"""Points of one study: at half a second each, half a day of a core."""

LABEL = "label."
"""Prefix of keys that name a point, and change nothing in its problem."""

Values = Mapping[str, Any]
"""Varied values, by path."""


@frozen
class Points:
    """A study, read: its base problem as written, and the points.

    Attributes:
        base: the base problem's mapping; keys are never changed in place.
        folder: of the base problem, from which relative paths start.
        values: of each point, in the order of the rows.
        columns: every path that is varied, in the order of the study.
        time_limit: seconds for each point; None: as long as it takes.
    """

    base: dict[str, Any] = field(repr=False)
    folder: Path
    values: tuple[Values, ...]
    columns: tuple[str, ...]
    time_limit: float | None


def read_points(path: Path) -> Points:
    """The points of the study at `path`.

    Raises:
        InputError: the study or its base cannot be read, or a path leads to no key of a problem; with file and line.
    """
    source = read_mapping(path)
    if "base" not in source.mapping and "training" in source.mapping:
        raise InputError(f"{path}: this is a problem, not a study; a study names a problem as its `base`.")
    study = structure_source(source, Study)
    where = path.parent / study.base
    base = read_mapping(where).mapping
    if mistakes := list(_wrong_paths(study, base)):
        raise source.errors(mistakes)
    count = prod(map(len, study.vary.values())) + len(study.points)
    if count > MOST_POINTS:
        raise source.errors([FieldError(("vary",), f"makes {count} points; a study has at most {MOST_POINTS}")])
    varied = [dict(zip(study.vary, values, strict=True)) for values in product(*study.vary.values())]
    columns = dict.fromkeys([*study.vary, *(key for point in study.points for key in point)])
    return Points(
        base, where.parent, (*(varied if study.vary else ()), *study.points), tuple(columns), study.time_limit
    )


def problem_at(base: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """The base problem with the values of a point in it, as it would be written; what is not changed is shared.

    Raises:
        FieldError: a path leads to nothing.
    """
    changed = dict(base)
    if any(path.startswith("cluster.levels[") for path in values):
        changed["cluster"] = _with_levels(base.get("cluster"))
    for path, value in values.items():
        if path.startswith(LABEL):
            continue
        steps = steps_of(path)
        if steps is None:
            raise FieldError((), "is no path of a key, such as cluster.levels[1].bandwidth")
        changed = _changed(changed, steps, value, ())
    return changed


def _with_levels(cluster: Any) -> Any:
    """A cluster as written; one by name, as `nest init` may write it, with the levels of that name in its place."""
    named = cluster.get("name", cluster.get("topology")) if isinstance(cluster, Mapping) else None
    if not isinstance(named, str) or known_cluster(named) is None:
        return cluster
    return unstructure(with_levels(structure(cluster, ClusterSpec)))


def value_at(item: Any, steps: Steps) -> Any:
    """Value of a mapping at the end of some steps; None if there is none."""
    for step in steps:
        if isinstance(item, dict):
            item = item.get(step)
        else:
            item = item[step] if isinstance(item, list) and isinstance(step, int) and step < len(item) else None
    return item


def _changed(at: Any, steps: Steps, value: Any, before: Steps) -> Any:
    """`at`, the item that `before` leads to, with `value` where `steps` lead further; None leaves a key out."""
    step, further = steps[0], steps[1:]
    place = dotted(before)
    if isinstance(step, int):
        if not isinstance(at, list):
            raise FieldError((), f"leads to no key: the base problem has no list {place}")
        if step >= len(at):
            raise FieldError((), f"leads to no key: {place} of the base problem ends at [{len(at) - 1}]")
        items = list(at)
        items[step] = _changed(items[step], further, value, (*before, step)) if further else value
        return items
    if at is None:
        at = {}
    if not isinstance(at, dict):
        raise FieldError((), f"leads to no key: {place} of the base problem is {at!r:.40}, which holds no keys")
    items_by_key = dict(at)
    if further:
        items_by_key[step] = _changed(at.get(step), further, value, (*before, step))
    elif value is None:
        items_by_key.pop(step, None)
    else:
        items_by_key[step] = value
    return items_by_key


def _wrong_paths(study: Study, base: Mapping[str, Any]) -> Iterator[FieldError]:
    """Paths that no problem has, with their places in the study; wrong values are answers of their points."""
    places: list[tuple[Steps, str, Any]] = [(("vary", key), key, values[0]) for key, values in study.vary.items()]
    places += [(("points", index, key), key, each[key]) for index, each in enumerate(study.points) for key in each]
    tried: set[str] = set()
    for place, path, value in places:
        if path not in tried and not path.startswith(LABEL):
            tried.add(path)
            yield from _wrong_path(base, path, value, place)


def _wrong_path(base: Mapping[str, Any], path: str, value: Any, place: Steps) -> Iterator[FieldError]:
    try:
        problem = problem_at(base, {path: value})
    except FieldError as error:
        yield FieldError(place, error.sentence)
        return
    try:
        converter().structure(problem, Problem)
    except FieldErrors as errors:
        steps = steps_of(path) or ()
        for each in errors.errors:  # Each point reports what is wrong in the base.
            if each.steps == steps[: len(each.steps)] and each.sentence.startswith("is not a known key"):
                yield FieldError(place, f"leads to no key: {each}")
