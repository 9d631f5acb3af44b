"""The rows of a study as its page has them, the keys that vary in them, and the figures of a plan that they show."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from attrs import field, frozen

from nest.units import COUNTS, QUANTITIES, format_bytes, format_decimal, format_seconds, parse, parse_count, percent
from nest_page.sensitivity_chart import signed
from nest_page.study.words import LABEL, names_of, value_in_words
from nest_studies.sweep.rows import StudyPoint

Group = tuple[str, tuple[StudyPoint, ...]]
"""Trained part in words, and the rows that have a plan for it."""

DEFAULT = "default"
"""Word for a key missing in a point and its problem."""

WORK = ("model", "profile", "training.")
"""Beginnings of keys that say what is computed."""

CHOICES = ("training.micro_batch", "training.schedule", "training.stack", "training.exposed", "training.overlap")
"""Keys that begin so, and say how."""


@frozen
class Axis:
    """A key that varies.

    Attributes:
        key: its path.
        name: in words.
        values: as shown, each once: numbers ascending, all else in the order of the rows.
        numbers: in SI units; None: not all of them are numbers of one kind.
        places: of each row, the index of its value; -1: it leaves the key out, and nothing else says what it is.
    """

    key: str
    name: str
    values: tuple[str, ...]
    numbers: tuple[float, ...] | None
    places: tuple[int, ...] = field(repr=False)

    @property
    def is_label(self) -> bool:
        """True if it says what points are called."""
        return self.key.startswith(LABEL)

    def shown(self, point: StudyPoint) -> str:
        """The value of a row; empty: it leaves the key out."""
        place = self.places[point.number - 1]
        return "" if place < 0 else self.values[place]

    def named(self, place: int) -> str:
        """A value with its name."""
        value = DEFAULT if place < 0 else self.values[place]
        return value if self.key == "model" else f"{self.name} {value}"

    @property
    def is_work(self) -> bool:
        """True if it says what is computed, so that step times are of different batches."""
        return self.key.startswith(WORK) and not self.key.startswith(CHOICES)


@frozen
class Study:
    """All rows of a study, the keys that vary in them, and the row that others are compared with; None: the first."""

    points: tuple[StudyPoint, ...]
    axes: tuple[Axis, ...]
    baseline: int | None = None

    @cached_property
    def trainings(self) -> tuple[Group, ...]:
        """Rows with a plan by what they train, in the order of the rows: step times of others do not compare."""
        work = [index for index in self.varying if self.axes[index].is_work]
        groups: dict[tuple[int, ...], list[StudyPoint]] = {}
        for place, point in zip(self.coordinates, self.points, strict=True):
            if point.batch_time is not None:
                groups.setdefault(tuple(place[index] for index in work), []).append(point)
        axes = [self.axes[index] for index in work]
        names = (", ".join(axis.named(value) for axis, value in zip(axes, place, strict=True)) for place in groups)
        return tuple(zip(names, map(tuple, groups.values()), strict=True))

    @cached_property
    def baselines(self) -> Mapping[int, StudyPoint]:
        """By number of a row with a plan, the row of its training that it is compared with."""
        found = {}
        for _, points in self.trainings:
            base = next((point for point in points if point.number == self.baseline), points[0])
            found.update(dict.fromkeys((point.number for point in points), base))
        return found

    def against(self, metric: "Metric", point: StudyPoint) -> str:
        """The change of a figure against the baseline: `+4.2 %`; empty: one of them is not known."""
        base = self.baselines.get(point.number)
        value, of = metric.value(point), None if base is None else metric.value(base)
        if base is point or value is None or not of:
            return "baseline" if base is point else ""
        return signed(value / of - 1)

    def said(self, metric: "Metric", point: StudyPoint) -> str:
        """A row's figure with its range and its change."""
        value, between, change = metric.value(point), metric.between(point), self.against(metric, point)
        if value is None:
            return "no plan" if point.batch_time is None else "unknown"
        likely = f" ({metric.text(between[0])} to {metric.text(between[1])})" if between is not None else ""
        of = f" against row {self.baselines[point.number].number}" if change not in ("", "baseline") else ""
        return f"{metric.text(value)}{likely}" + (f", {change}{of}" if change else "")

    @cached_property
    def varying(self) -> tuple[int, ...]:
        """Indices of the keys that take several values; where labels decide one, they stand for it."""
        several = [index for index, axis in enumerate(self.axes) if len(axis.values) > 1]
        labels = [index for index in several if self.axes[index].is_label]
        return tuple(index for index in several if index in labels or not self._decided(labels, index))

    @cached_property
    def compared(self) -> tuple[Axis, ...]:
        """Keys that vary among rows of one training."""
        return tuple(self.axes[index] for index in self.varying if not self.axes[index].is_work)

    @cached_property
    def shown(self) -> tuple[int, ...]:
        """Indices of the keys but for those that labels decide."""
        several = {index for index, axis in enumerate(self.axes) if len(axis.values) > 1}
        return tuple(index for index in range(len(self.axes)) if index in self.varying or index not in several)

    def _decided(self, by: Sequence[int], index: int) -> bool:
        """Return whether rows that are alike on some axes are alike on another."""
        pairs = {(tuple(place[axis] for axis in by), place[index]) for place in self.coordinates}
        return bool(by) and len(pairs) == len({own for own, _ in pairs})

    @cached_property
    def coordinates(self) -> tuple[tuple[int, ...], ...]:
        """Of each row, the index of its value on every axis."""
        return tuple(zip(*(axis.places for axis in self.axes), strict=True))

    @cached_property
    def by_coordinates(self) -> Mapping[tuple[int, ...], StudyPoint]:
        """The first row with these values on the axes that vary."""
        found: dict[tuple[int, ...], StudyPoint] = {}
        for place, point in zip(self.coordinates, self.points, strict=True):
            found.setdefault(tuple(place[index] for index in self.varying), point)
        return found

    def held(self, free: Iterable[int], wanted: Mapping[int, int]) -> dict[int, int]:
        """The value of each key that varies and is not drawn: of all rows, those of most, of equals the middle one.

        Args:
            free: indices of the keys that it draws.
            wanted: values that somebody asked for.
        """
        others = [index for index in self.varying if index not in set(free)]
        counts = Counter(
            tuple(place[index] for index in others)
            for place in self.coordinates
            if all(place[index] >= 0 for index in self.varying)
            and all(place[index] == wanted[index] for index in others if index in wanted)
        )
        middles = [(len(self.axes[index].values) - 1) / 2 for index in others]

        def order(each: tuple[tuple[int, ...], int]) -> tuple[float, ...]:
            away = sum(abs(value - middle) for value, middle in zip(each[0], middles, strict=True))
            return (-each[1], away, *(-value for value in each[0]))

        best = min(counts.items(), key=order)[0] if counts else tuple(wanted.get(index, 0) for index in others)
        return dict(zip(others, best, strict=True))

    def at(self, values: Mapping[int, int]) -> StudyPoint | None:
        """The first row with a value on every axis that varies."""
        return self.by_coordinates.get(tuple(values[index] for index in self.varying))


def study_of(
    columns: Sequence[str],
    points: Sequence[StudyPoint],
    problem: Mapping[str, Any] | None = None,
    baseline: int | None = None,
) -> Study:
    """Rows with the keys that vary in them, in the order of the columns.

    Args:
        columns: the keys.
        points: the rows.
        problem: what all rows share, which names the levels of the network; None: unknown.
        baseline: the row that others are compared with; None: the first.
    """
    named = enumerate(zip(columns, names_of(columns, problem or {}), strict=True))
    axes = (_axis(key, name, [point.values[index] for point in points]) for index, (key, name) in named)
    return Study(tuple(points), tuple(axes), baseline)


def _axis(key: str, name: str, written: Sequence[Any]) -> Axis:
    texts = [None if value is None else value if isinstance(value, str) else json.dumps(value) for value in written]
    kind, numbers = _numbers([text for text in dict.fromkeys(texts) if text is not None])
    if not numbers:
        values = tuple(dict.fromkeys(DEFAULT if text is None else text for text in texts))
        at = {value: index for index, value in enumerate(values)}
        places = tuple(at[DEFAULT if text is None else text] for text in texts)
        words = tuple(value_in_words(key, value) for value in values)
        return Axis(key, name, words if len({*words}) == len(words) else values, None, places)
    shown: dict[float, str] = {}
    for text in texts:
        if text is not None:
            shown.setdefault(numbers[text], text)
    ordered = sorted(shown)
    place = {number: index for index, number in enumerate(ordered)}
    named = tuple(_named(shown[number], kind) for number in ordered)
    places = tuple(-1 if text is None else place[numbers[text]] for text in texts)
    return Axis(key, name, named, tuple(ordered), places)


def _named(text: str, kind: object) -> str:
    """A value as shown: as it was written, but a bare number of a quantity with its unit."""
    try:
        bare = float(text)
    except ValueError:
        return text
    return quantity_text(bare, kind)


def quantity_text(number: float, kind: object) -> str:
    """A number of a kind (`nest.units.QUANTITIES`) for people; of no kind, unchanged."""
    name = getattr(kind, "__name__", "")
    if name == "Seconds":
        return format_seconds(number)
    if name == "Bytes":
        return format_bytes(number)
    if name in ("BytesPerSecond", "FlopPerSecond"):
        return format_decimal(number, "B/s" if name.startswith("Bytes") else "FLOP/s")
    return f"{number:.12g}"


def _numbers(texts: Sequence[str]) -> tuple[object, dict[str, float]]:
    """Kind of quantity of all values, and the number of each; None if they are no quantities."""
    for kind in (None, *QUANTITIES, *COUNTS):
        with suppress(ValueError):
            found = {text: _number(text, kind) for text in texts}
            if all(map(math.isfinite, found.values())):
                return kind, found
    return None, {}


def _number(text: str, kind: object) -> float:
    if kind is None:
        return float(text)
    if kind in QUANTITIES:
        return parse(text, kind)
    try:
        return float(text)
    except ValueError:
        return float(parse_count(text, kind))


@frozen
class Metric:
    """A figure of a plan.

    Attributes:
        name: as `--metric` takes it.
        title: heading.
        value: of a row; None: it has none.
        text: for people.
        less_is_better: whether the best is the least.
        units: names of its units with their sizes, the greatest first.
    """

    name: str
    title: str
    value: Callable[[StudyPoint], float | None]
    text: Callable[[float], str]
    less_is_better: bool = True
    units: tuple[tuple[float, str], ...] = ((1.0, ""),)

    def between(self, point: StudyPoint) -> tuple[float, float] | None:
        """The figure's likely range, from the range of the step time; None: unknown."""
        value = self.value(point)
        if value is None or self.name == "cost" or not (point.batch_time and point.low and point.high):
            return None
        low, high = point.low / point.batch_time, point.high / point.batch_time
        return (value * low, value * high) if self.less_is_better else (value / high, value / low)

    @property
    def heading(self) -> str:
        """The title, to begin a sentence."""
        return self.title[0].upper() + self.title[1:]

    def unit_of(self, values: Sequence[float]) -> tuple[float, str]:
        """The size and the name of the unit that suits the greatest of some values."""
        most = max(values, default=0.0)
        return next((each for each in self.units if most >= each[0]), self.units[-1])

    def with_unit(self, values: Sequence[float]) -> str:
        """The title with the unit that suits the greatest of some values."""
        return ", ".join(filter(None, (self.title, self.unit_of(values)[1])))

    def times_best(self, value: float, best: float) -> float:
        """Ratio of a value to the best, at least 1."""
        better, worse = (best, value) if self.less_is_better else (value, best)
        return worse / better if better > 0 else 1.0

    def best(self, values: Sequence[float]) -> float:
        """The best of some values."""
        return min(values) if self.less_is_better else max(values)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


_TIMES = ((60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_MANY = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))

METRICS: Mapping[str, Metric] = {
    each.name: each
    for each in (
        Metric("step-time", "step time", lambda point: point.batch_time, format_seconds, units=_TIMES),
        Metric("samples", "samples/s", lambda point: point.throughput, _plain, less_is_better=False, units=_MANY),
        Metric("tokens", "tokens/s", lambda point: point.tokens, _plain, less_is_better=False, units=_MANY),
        Metric(
            "tokens-per-device",
            "tokens/s per device",
            lambda point: point.tokens / point.devices if point.tokens and point.devices else None,
            _plain,
            less_is_better=False,
            units=_MANY,
        ),
        Metric(
            "mfu",
            "model FLOP utilisation",
            lambda point: point.mfu,
            lambda value: f"{percent(value)}",
            less_is_better=False,
            units=((0.01, "%"),),
        ),
        Metric("cost", "cost to train", lambda point: point.cost, _plain, units=_MANY),
    )
}
"""By name."""


def usual_metric(study: Study) -> Metric:
    """The step time; where the batch varies, how many tokens, or else samples, there are in a second."""
    batch = ("training.global_batch", "training.sequence_length")
    if not any(study.axes[index].key in batch for index in study.varying):
        return METRICS["step-time"]
    return METRICS["tokens" if any(point.tokens is not None for point in study.points) else "samples"]
