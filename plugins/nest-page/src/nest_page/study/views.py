"""Keys of a study in a figure: drawn ones, those of panels, and fixed values of the others."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from attrs import frozen

from nest.units import listed
from nest_page.study.points import Axis, Metric, Study
from nest_studies.sweep.rows import StudyPoint

MOST_PANELS = 12
"""Panels of a figure."""

MOST_FIGURES = 6
"""Figures of a kind."""

MOST_LINES = 10
"""Lines of a panel: as many as there are hues."""


@frozen
class View:
    """A figure's keys, as indices of the study's axes.

    Attributes:
        study: all rows.
        metric: what is drawn of them.
        across: from left to right.
        other: the lines of curves, or from top to bottom; None: none.
        facet: a panel for each value; None: one panel.
        held: the value of each other key.
        most: values drawn on an axis, evenly chosen where there are more.
    """

    study: Study
    metric: Metric
    across: int
    other: int | None
    facet: int | None
    held: Mapping[int, int]
    most: tuple[int, int]

    @property
    def across_axis(self) -> Axis:
        """The key from left to right."""
        return self.study.axes[self.across]

    @property
    def other_axis(self) -> Axis | None:
        """The key of lines, or from top to bottom."""
        return None if self.other is None else self.study.axes[self.other]

    @property
    def panels(self) -> tuple[tuple[str, int | None], ...]:
        """Name and value of each panel."""
        if self.facet is None:
            return (("", None),)
        return tuple((name, index) for index, name in enumerate(self.study.axes[self.facet].values))[:MOST_PANELS]

    @property
    def columns(self) -> tuple[int, ...]:
        """Indices of the values from left to right."""
        return _thinned(len(self.across_axis.values), self.most[0])

    @property
    def rows(self) -> tuple[int, ...]:
        """Indices of the values of the other key; without one a single 0."""
        return (0,) if self.other_axis is None else _thinned(len(self.other_axis.values), self.most[1])

    def point(self, panel: int | None, column: int, row: int) -> StudyPoint | None:
        """The row of the study with these values."""
        values = {**self.held, self.across: column}
        if self.other is not None:
            values[self.other] = row
        if self.facet is not None and panel is not None:
            values[self.facet] = panel
        return self.study.at(values)

    def values(self, panel: int | None) -> list[float]:
        """The metric of all points of a panel that have it."""
        points = (self.point(panel, column, row) for column in self.columns for row in self.rows)
        found = (self.metric.value(point) for point in points if point is not None)
        return [value for value in found if value is not None]

    @property
    def note(self) -> str:
        """Parts of the study that the figure leaves out, in sentences."""
        axes = self.study.axes
        held = listed([f"{axes[key].name} at {axes[key].values[value]}" for key, value in self.held_varying])
        sentences = [f" Held: {held}; the table of all rows has the others."] if held else []
        drawn = [(self.across, len(self.columns)), *([] if self.other is None else [(self.other, len(self.rows))])]
        if self.facet is not None:
            drawn.append((self.facet, len(self.panels)))
        sentences += [
            f" Of {len(axes[key].values):,} values of {axes[key].name}, {count} are drawn."
            for key, count in drawn
            if count < len(axes[key].values)
        ]
        return "".join(sentences)

    @property
    def held_varying(self) -> tuple[tuple[int, int], ...]:
        """Keys that take several values in the study and one here, with that."""
        return tuple((key, value) for key, value in self.held.items() if len(self.study.axes[key].values) > 1)


def facet_of(study: Study) -> int | None:
    """The key whose values get a panel each: the model, else of three keys or more a choice of few; None: none."""
    names = {study.axes[index].key: index for index in study.varying}
    if "model" in names and len(names) > 1:
        return names["model"]
    choices = [index for index in study.varying if study.axes[index].numbers is None]
    if len(study.varying) < 3 or not choices:
        return None
    return min(choices, key=lambda index: len(study.axes[index].values))


def curve_views(study: Study, metric: Metric, wanted: Mapping[int, int]) -> Iterator[View]:
    """A view for each number that varies: over it, a line for each value of one other key."""
    facet = facet_of(study)
    drawn = [index for index in study.varying if index != facet]
    numbers = [index for index in drawn if study.axes[index].numbers is not None]
    for across in numbers[:MOST_FIGURES]:
        other = _lines(study, [index for index in drawn if index != across])
        held = study.held([across, *_some(other), *_some(facet)], wanted)
        yield View(study, metric, across, other, facet, held, (120, MOST_LINES))


def pair_views(study: Study, metric: Metric, wanted: Mapping[int, int]) -> Iterator[View]:
    """A view for each two keys that vary, beside the key of the panels; one view if one key varies."""
    facet = facet_of(study)
    drawn = [index for index in study.varying if index != facet]
    pairs: Sequence[tuple[int, int | None]] = list(combinations(drawn, 2)) or [(index, None) for index in drawn]
    for one, two in list(pairs)[:MOST_FIGURES]:
        across, other = one, two
        if two is not None and _is_wider(study.axes[two], study.axes[one]):
            across, other = two, one
        yield View(study, metric, across, other, facet, study.held([one, *_some(two), *_some(facet)], wanted), (40, 40))


def _is_wider(one: Axis, than: Axis) -> bool:
    """Return whether a key suits the horizontal axis better than another: numbers do, and many values."""
    return (one.numbers is not None, len(one.values)) > (than.numbers is not None, len(than.values))


def _lines(study: Study, others: Sequence[int]) -> int | None:
    """The key of lines: a choice before a number, few values before many, but not too many."""
    ordered = sorted(others, key=lambda i: (study.axes[i].numbers is not None, len(study.axes[i].values)))
    few = [index for index in ordered if len(study.axes[index].values) <= MOST_LINES]
    return next(iter(few or ordered), None)


def _some(index: int | None) -> tuple[int, ...]:
    return () if index is None else (index,)


def _thinned(count: int, most: int) -> tuple[int, ...]:
    """Indices of at most so many of `count` values, evenly spaced, the first and the last among them."""
    if count <= most:
        return tuple(range(count))
    return tuple(dict.fromkeys(round(index * (count - 1) / (most - 1)) for index in range(most)))
