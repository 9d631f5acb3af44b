"""The page of a study: curves, heat maps, regions, the front, and every row."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve

from nest.units import format_bytes, format_seconds, likelihood, listed, percent
from nest_page.records import Cell, Heading, PlanStatus, Section, Table
from nest_page.rendering import rendered
from nest_page.study.curves import curve_figure
from nest_page.study.front import front_figure
from nest_page.study.grids import heat_figure, region_figure
from nest_page.study.points import Metric, Study
from nest_page.study.views import curve_views, pair_views
from nest_studies.sweep.rows import StudyPoint

AGAINST = "against baseline"
"""Heading of changes in per cent."""

MOST_BASES = 12
"""Baselines that are named."""

MOST_REASONS = 40
"""Reasons why rows have no plan."""


def study_page(
    heading: Heading, study: Study, metric: Metric, held: Mapping[int, int], how: str, base: Sequence[Section] = ()
) -> str:
    """The HTML file of a study's rows.

    Args:
        heading: title and the like of the page.
        study: its rows.
        metric: what is drawn of them.
        held: values of axes that figures that do not draw them show, by index; others are chosen.
        how: how a row's plan is written, in a sentence.
        base: last sections, on what all rows share.
    """
    planned = [point for point in study.points if point.batch_time is not None]
    sizes = [f"{len(study.axes[index].values):,} values of {study.axes[index].name}" for index in study.varying]
    points = f"{len(study.points):,} point" + "s" * (len(study.points) != 1)
    heading = evolve(
        heading, about=(*heading.about, ("Points", f"{': '.join(filter(None, (points, listed(sizes))))}."))
    )
    sections = [_summary(study, metric)]
    if planned:
        sections += _figures(study, metric, held)
    if refused := _refusals(study):
        sections.append(refused)
    sections += [_rows(study, metric, how), *base]
    return rendered(evolve(heading, kind="study"), (_status(study),), sections)


def _status(study: Study) -> PlanStatus:
    counts = Counter(point.status for point in study.points)
    told = listed([f"{count:,} {status}" for status, count in counts.items()])
    if counts["error"]:
        return PlanStatus("Errors", "bad", f"{told}.")
    if counts["feasible"] or counts["unanswered"]:
        return PlanStatus(
            "Partly proved", "poor", f"{told}; those feasible may have faster plans, down to their bounds."
        )
    if counts["near-optimal"]:
        proof = f"{told}; those near-optimal are simpler or safer than the fastest, and hardly slower."
        return PlanStatus("Proved", "good", proof)
    if any(point.batch_time is not None for point in study.points):
        return PlanStatus("Optimal", "good", f"{told}: no plan of a row is faster.")
    return PlanStatus("No plans", "bad", f"{told}.")


def _summary(study: Study, metric: Metric) -> Section:
    """Varied keys, and the best row of each training."""
    varies = Table(
        "What varies",
        ("what", "values", "key"),
        tuple(
            (
                Cell(axis.name),
                Cell(_values(axis.values) if index in study.shown else "decided by the labels"),
                Cell(f"`{axis.key}`"),
            )
            for index, axis in enumerate(study.axes)
        ),
        words=(0, 1, 2),
    )
    best = []
    for name, points in study.trainings:
        valued = [(value, point) for point in points if (value := metric.value(point)) is not None]
        if valued:
            value, point = (min if metric.less_is_better else max)(valued, key=lambda each: each[0])
            best.append((name, value, point))
    header = ("training", f"best {metric.title}", AGAINST, "row", *(axis.name for axis in study.compared), "plan")
    rows = tuple(
        (
            Cell(name or "all rows"),
            Cell(metric.text(value), value),
            Cell(study.against(metric, point)),
            Cell(f"{point.number:,}", link=f"#{point.anchor}"),
            *(Cell(axis.shown(point)) for axis in study.compared),
            Cell(point.plan),
        )
        for name, value, point in best[:MOST_REASONS]
    )
    tables = (varies, *([Table("The best of each training", header, rows, (0, len(header) - 1))] if rows else []))
    lead = f"Each row is the best plan at one point, found by `nest sweep`; figures show its {metric.title}."
    bases = sorted({base.number for base in study.baselines.values()})
    named = f"row{'s' * (len(bases) > 1)} {listed(list(map(str, bases)))}"
    several = " of the same training" if len(bases) > 1 else ""
    said = f"Percentages compare a row's {metric.title} with the baseline{several}: {named}."
    told = (said,) if 0 < len(bases) <= MOST_BASES else ()
    return Section("summary", "The study", lead=lead, paragraphs=told, tables=tables)


def _values(values: Sequence[str]) -> str:
    return ", ".join(values) if len(values) <= 12 else f"{', '.join(values[:11])}, ... {values[-1]}"


def _figures(study: Study, metric: Metric, held: Mapping[int, int]) -> Iterator[Section]:
    curves, pairs = tuple(curve_views(study, metric, held)), tuple(pair_views(study, metric, held))
    if curves:
        yield Section("curves", "Curves", figures=tuple(map(curve_figure, curves)))
    if pairs:
        if maps := [view for view in pairs if view.other is not None or not curves]:  # A curve says more than a strip.
            yield Section("maps", "Heat maps", figures=tuple(map(heat_figure, maps)))
        yield Section("regions", "Which plan wins where", figures=tuple(map(region_figure, pairs)))
    yield Section("front", "Pareto front", figures=(front_figure(study, study.trainings),))


def _refusals(study: Study) -> Section | None:
    """Why rows have no plan, each reason once."""
    reasons: dict[tuple[str, str], list[StudyPoint]] = {}
    for point in study.points:
        if point.batch_time is None:
            reasons.setdefault((point.status, point.reason), []).append(point)
    if not reasons:
        return None
    rows = tuple(
        (
            Cell(status),
            Cell(f"{len(points):,}", float(len(points))),
            Cell(f"{points[0].number:,}", link=f"#{points[0].anchor}"),
            Cell(reason),
        )
        for (status, reason), points in list(reasons.items())[:MOST_REASONS]
    )
    left = len(reasons) - len(rows)
    further = (f"{left:,} further reasons are in the rows.",) if left > 0 else ()
    table = Table("Why rows have no plan", ("status", "rows", "first of them", "reason"), rows, (0, 3))
    return Section("refusals", "Rows without a plan", paragraphs=further, tables=(table,))


def _rows(study: Study, metric: Metric, how: str) -> Section:
    """All rows; the other figures' points lead here."""
    ranged = any(point.low is not None for point in study.points)
    known = {
        "MFU": metric.name != "mfu" and any(point.mfu is not None for point in study.points),
        "cost": metric.name != "cost" and any(point.cost is not None for point in study.points),
        "fits": any(point.fit_probability is not None for point in study.points),
    }
    header = (
        *("row", *(study.axes[index].name for index in study.shown), "status", "step time"),
        *(() if metric.name == "step-time" else (metric.title,)),
        *(AGAINST, *(("80 % likely",) if ranged else ()), "devices", "memory"),
        *(name for name, any_known in known.items() if any_known),
        *("dp", "plan"),
    )
    rows = tuple(_row(study, metric, point, known, ranged) for point in study.points)
    words = tuple(i for i, name in enumerate(header) if name in ("row", "status", "plan"))
    table = Table("All rows", header, rows, words, tuple(point.anchor for point in study.points))
    return Section("rows", "All rows", paragraphs=(how,), tables=(table,))


def _row(study: Study, metric: Metric, point: StudyPoint, known: Mapping[str, bool], ranged: bool) -> tuple[Cell, ...]:
    further = {
        "MFU": "" if point.mfu is None else f"{percent(point.mfu)}",
        "cost": "" if point.cost is None else f"{point.cost:,.0f}",
        "fits": "" if point.fit_probability is None else likelihood(point.fit_probability),
    }
    value = metric.value(point)
    own = Cell("" if value is None else metric.text(value), value)
    likely = (
        ""
        if point.low is None or point.high is None
        else f"{format_seconds(point.low)} to {format_seconds(point.high)}"
    )
    return (
        Cell(str(point.number), link=point.link),
        *(Cell(study.axes[index].shown(point)) for index in study.shown),
        Cell(point.status),
        Cell("" if point.batch_time is None else format_seconds(point.batch_time), point.batch_time),
        *(() if metric.name == "step-time" else (own,)),
        Cell(study.against(metric, point)),
        *((Cell(likely),) if ranged else ()),
        Cell("" if point.devices is None else str(point.devices)),
        Cell("" if point.memory is None else format_bytes(point.memory)),
        *(Cell(text) for name, text in further.items() if known[name]),
        Cell("" if point.replicas is None else str(point.replicas)),
        Cell(point.plan),
    )
