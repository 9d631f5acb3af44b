"""Links of the catalogue fitted to measured collectives, and how far each is from them by table, kind and size.

Without a better prior, fits begin at the constants NCCL plans with.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod

import numpy
from attrs import evolve, frozen

from nest.catalogue import Link, network_levels
from nest.catalogue import link as entry
from nest.catalogue.entries import LinkLine
from nest.instance import Array, CollectiveModel, Level
from nest.spec import LevelSpec
from nest.units import BytesPerSecond, format_decimal, listed
from nest_calibrate.collective_measurements import NOISE, Measurement
from nest_calibrate.entries import FITTED
from nest_calibrate.fit_doubts import Fitted, at_bounds, doubt_better, doubt_coefficients
from nest_calibrate.lines import Doubt, no_doubt
from nest_calibrate.nccl import planned_lines
from nest_calibrate.plausible import Figure, refuse_impossible
from nest_calibrate.robust_fit import UNTOLD, Prior, belief_left, robust_fit

CATALOGUE, NCCL = "catalogue", "nccl"
"""Start of a fit: the catalogue's lines of the link, or the constants NCCL plans with."""


OUTLIER = 0.1
"""Relative error beyond which a measurement counts less and less."""

BELIEF, OWN_BELIEF = 1.0, 0.5
"""Standard deviations before measuring: of logarithms, so a factor of e either way, and of own shares."""

LIMITS = ((0.1e-6, 500e-6), (0.01e-6, 100e-6), (0.01, 1.0))
"""Bounds of base and step in seconds, and of the efficiency of a protocol."""

STARTS = 12
"""Starts of a fit: the choice of protocols by size makes many local optima."""

DIGITS = 3
"""Significant digits of fitted coefficients."""

SIZES = ((0.0, "below 256 KiB"), (2.0**18, "256 KiB to 16 MiB"), (2.0**24, "16 MiB on"))
"""Least bytes of each range of sizes: where latency counts, where both do, and where bandwidth does."""

ALL = "all"


@frozen
class Errors:
    """Relative errors of `count` predictions: median and 90th percentile (`most`) of their absolute values.

    Attributes:
        bias: the median with its sign.
    """

    count: int
    median: float
    most: float
    bias: float


@frozen
class Calibrated:
    """A link fitted to measurements, with errors of the catalogue's entry and of the new one.

    Errors are by table, kind and range of sizes.
    """

    link: Link
    before: Mapping[tuple[str, str, str], Errors]
    after: Mapping[tuple[str, str, str], Errors]


def calibrate_links(
    measurements: Sequence[Measurement],
    model: CollectiveModel,
    prior: str = CATALOGUE,
    progress: Callable[[str, float], None] | None = None,
    doubt: Doubt = no_doubt,
) -> list[Calibrated]:
    """Each link that measurements tell of, the outermost of each, fitted to them, by name.

    Args:
        measurements: of collectives.
        model: prices collectives.
        prior: `catalogue` or `nccl`: what each fit begins at and stays near where nothing is measured. A link without
            lines in the catalogue begins at NCCL's constants in any case.
        progress: called with what is being done, and which share of the measurements is fitted.
        doubt: called with what is doubtful about fits.

    Raises:
        InputError: a link is unknown, a level has no bandwidth, or a collective takes a time that cannot be.
    """
    by_link: dict[str, list[Measurement]] = {}
    for each in measurements:
        by_link.setdefault(each.link, []).append(each)
    calibrated: list[Calibrated] = []

    def fitting(doing: str, share: float) -> None:
        if progress is not None:
            done = sum(len(by_link[each.link.name]) for each in calibrated)
            progress(doing, (done + share * len(by_link[name])) / len(measurements))

    for name in sorted(by_link):
        calibrated.append(_calibrated(name, by_link[name], model, prior, fitting, doubt))
    return calibrated


def _calibrated(
    name: str,
    measured: list[Measurement],
    model: CollectiveModel,
    prior: str,
    progress: Callable[[str, float], None],
    doubt: Doubt,
) -> Calibrated:
    known = entry(name, measured[0].table)
    begun = known if prior == CATALOGUE and known.lines else evolve(known, lines=planned_lines(known))
    groups = grouped(measured, known)
    refuse_impossible(figure for group in groups for figure in group.figures(known, model))
    untold: list[str] = []
    bound: list[str] = []
    fitted = fit_link(
        begun, groups, model, lambda doing, done: progress(doing, done / len(groups)), untold.append, bound.append
    )
    before, after = errors(measured, known, model), errors(measured, fitted, model)
    every = ALL, ALL, ALL
    doubt_better(f"{name}: the error in the median", before[every].median, after[every].median, doubt)
    doubt_coefficients(name, bound, untold, doubt)
    sources = tuple(source for source in known.sources if not source.startswith(FITTED))
    return Calibrated(evolve(fitted, sources=(*sources, _source(measured, after, prior))), before, after)


def _source(measured: Sequence[Measurement], after: Mapping[tuple[str, str, str], Errors], prior: str) -> str:
    errors_after = after[ALL, ALL, ALL]
    tables = ", ".join(sorted({each.table.removesuffix(".parquet") for each in measured}))
    begun = "NCCL's planning constants" if prior == NCCL else "the catalogue's"
    return (
        f"{FITTED}robust least squares of relative errors of {errors_after.count} collectives ({tables}), "
        f"begun at {begun} (nest calibrate collectives); error in the median {100 * errors_after.median:.1f} %, "
        f"90th percentile {100 * errors_after.most:.1f} %"
    )


@frozen(eq=False)
class Group:
    """Measurements that differ in bytes and seconds only.

    Attributes:
        kind: of collective.
        shape: members per group of each level, innermost first.
        levels: the network, innermost first.
        nominal: bytes per second of the outermost level before protocols take their share.
        places: of each measurement, for people.
    """

    kind: str
    shape: tuple[int, ...]
    levels: tuple[Level, ...]
    nominal: float
    bytes: Array
    seconds: Array
    places: tuple[str, ...] = ()

    def figures(self, link: Link, model: CollectiveModel) -> Iterator[Figure]:
        """The times beside those that `model` predicts, and those that the nominal bandwidth takes at the least.

        Of a buffer, `(m - 1)/m` of what a device of each of the `m` groups has goes over the outermost link, whatever
        the algorithm.
        """
        inside = 1 if self.kind == "all_to_all" else prod(self.shape[:-1])
        least = (self.shape[-1] - 1) / self.shape[-1] * self.bytes / inside / self.nominal
        usual, floor = self.predicted(link, model), f"at the {format_decimal(self.nominal, 'B/s')} of {link.name}"
        columns = (self.places, self.seconds.tolist(), usual.tolist(), least.tolist())
        for place, seconds, expected, fastest in zip(*columns, strict=True):
            yield Figure(place, "its time", seconds, expected, 0.0, fastest, floor, noise=NOISE)

    def predicted(self, link: Link, model: CollectiveModel) -> Array:
        """Seconds by `model`, the outermost level made of `link`."""
        outermost = evolve(
            self.levels[-1],
            bandwidth=self.nominal * link.efficiency,
            latency=link.latency,
            lines=tuple(line.on(self.nominal) for line in link.lines),
        )
        levels = (*self.levels[:-1], outermost)
        many: Callable[..., Array] | None = getattr(model, "times", None)
        if many is not None:
            return numpy.asarray(many(self.kind, self.bytes, self.shape, levels))
        return numpy.array([model.time(self.kind, float(size), self.shape, levels) for size in self.bytes])


def grouped(measurements: Iterable[Measurement], link: Link) -> list[Group]:
    """The measurements by what is priced together, in the order in which they come.

    Raises:
        InputError: a level has no bandwidth.
    """
    groups: dict[tuple[object, ...], list[Measurement]] = {}
    for each in measurements:
        groups.setdefault((each.kind, each.shape, each.links, each.bandwidths), []).append(each)
    return [_group(link, rows) for rows in groups.values()]


def _group(link: Link, rows: Sequence[Measurement]) -> Group:
    first = rows[0]
    written = [
        LevelSpec(members, None if bandwidth is None else BytesPerSecond(bandwidth), None, None, name)
        for members, name, bandwidth in zip(first.shape, first.links, first.bandwidths, strict=True)
    ]
    levels = network_levels(written, first.table)
    nominal = first.bandwidths[-1] or link.bandwidth or levels[-1].bandwidth / link.efficiency
    sizes, seconds = (numpy.array(each) for each in zip(*((row.bytes, row.seconds) for row in rows), strict=True))
    return Group(first.kind, first.shape, levels, nominal, sizes, seconds, tuple(row.place for row in rows))


def fit_link(
    link: Link,
    groups: Sequence[Group],
    model: CollectiveModel,
    progress: Callable[[str, int], None] | None = None,
    untold: Callable[[str], None] = no_doubt,
    bound: Callable[[str], None] = no_doubt,
) -> Link:
    """`link` with the lines under which `model` comes closest to the measurements.

    The link's lines are where the fit begins and what it stays at where nothing is measured: each coefficient is
    believed to a factor of e, each measurement to 5 %, and those off by more than 10 % count less (soft L1). Lines of
    different kinds share no coefficient, so each kind is fitted on its own. `progress` is called with what is fitted
    next, and how many groups are fitted, `untold` with coefficients that nothing tells of, `bound` with those at
    bounds.
    """
    fitted, done = dict(enumerate(link.lines)), 0
    for kinds in dict.fromkeys(line.kinds for line in link.lines):
        relevant = [group for group in groups if group.kind in kinds]
        chosen = [index for index, line in enumerate(link.lines) if line.kinds == kinds]
        if relevant:
            if progress is not None:
                progress(f"fitting {', '.join(kinds)} of {link.name}", done)
            done += len(relevant)
            fitted.update(zip(chosen, _fit_kinds(link, chosen, relevant, model, untold, bound), strict=True))
        else:
            untold(f"all of {listed(kinds)}")
    return evolve(link, lines=tuple(fitted.values()))


def _fit_kinds(
    link: Link,
    chosen: list[int],
    groups: Sequence[Group],
    model: CollectiveModel,
    untold: Callable[[str], None],
    bound: Callable[[str], None],
) -> list[LinkLine]:
    """The chosen lines of `link`, which serve the same kinds, fitted."""
    lines = [link.lines[index] for index in chosen]
    measured = numpy.concatenate([group.seconds for group in groups])

    def residuals(coefficients: Array) -> Array:
        trial = dict(enumerate(link.lines)) | dict(zip(chosen, _lines(lines, coefficients), strict=True))
        candidate = evolve(link, lines=tuple(trial.values()))
        seconds: Array = numpy.concatenate([group.predicted(candidate, model) for group in groups])
        off: Array = numpy.log(seconds / measured)
        return off

    prior = _prior(lines)
    found = robust_fit(residuals, prior, OUTLIER, NOISE, STARTS)
    _tell_coefficients(lines, found, prior, belief_left(residuals, found, prior, OUTLIER, NOISE), untold, bound)
    return [_rounded(line) for line in _lines(lines, found)]


def _tell_coefficients(
    lines: Sequence[LinkLine],
    found: Array,
    prior: Prior,
    left: Array,
    untold: Callable[[str], None],
    bound: Callable[[str], None],
) -> None:
    """Tell which coefficients of `lines` nothing tells of, and which are at bounds; `left` is of `belief_left`."""
    names = [f"{key} of {line.protocol}" for line in lines for key in ("base", "step", "efficiency")]
    columns = numpy.array([found, prior.center, prior.low, prior.high])
    columns[:, :-1] = numpy.exp(columns[:, :-1])
    rows = [Fitted(name, *row) for name, row in zip([*names, "own share"], columns.T.tolist(), strict=True)]
    nothing = (left > UNTOLD).tolist()
    unseen = [row.name for row, none in zip(rows, nothing, strict=True) if none]
    seen = at_bounds(row for row, none in zip(rows, nothing, strict=True) if not none)
    for told, tell in ((unseen, untold), (seen, bound)):
        if told:
            tell(f"{listed(told)} in {listed(lines[0].kinds)}")


def _prior(lines: Sequence[LinkLine]) -> Prior:
    """Coefficients of `lines`: logarithms of base, step and efficiency of each, and the own share they all have."""
    low, high = numpy.log(numpy.array(LIMITS)).T
    figures = numpy.log([(line.base, line.step, line.efficiency) for line in lines])
    own = max(line.own for line in lines)
    return Prior(
        center=numpy.append(figures.ravel(), own),
        spread=numpy.append(numpy.full(figures.size, BELIEF), OWN_BELIEF),
        low=numpy.append(numpy.tile(low, len(lines)), 0.0),
        high=numpy.append(numpy.tile(high, len(lines)), 1.0),
    )


def _lines(lines: Sequence[LinkLine], coefficients: Array) -> list[LinkLine]:
    """`lines` with other coefficients. What a switch reduces nobody copies for itself."""
    figures = numpy.exp(coefficients[:-1]).reshape(len(lines), 3).tolist()
    own = float(coefficients[-1])
    return [
        evolve(line, base=base, step=step, efficiency=min(efficiency, 1.0), own=0.0 if line.in_switch else own)
        for line, (base, step, efficiency) in zip(lines, figures, strict=True)
    ]


def _rounded(line: LinkLine) -> LinkLine:
    base, step, efficiency, own = (float(f"{x:.{DIGITS}g}") for x in (line.base, line.step, line.efficiency, line.own))
    return evolve(line, base=base, step=step, efficiency=efficiency, own=own)


def errors(
    measurements: Sequence[Measurement], link: Link, model: CollectiveModel
) -> dict[tuple[str, str, str], Errors]:
    """Errors of `link` by table, kind and range of sizes; `all` stands for all of one of these."""
    result: dict[tuple[str, str, str], list[float]] = {}
    for table in dict.fromkeys(each.table for each in measurements):
        for group in grouped([each for each in measurements if each.table == table], link):
            off = (group.predicted(link, model) / group.seconds - 1.0).tolist()
            for size, error in zip(group.bytes.tolist(), off, strict=True):
                for key in _keys(table, group.kind, size):
                    result.setdefault(key, []).append(error)
    order = {name: index for index, (_, name) in enumerate((*SIZES, (0.0, ALL)))}
    return {
        key: _errors(result[key]) for key in sorted(result, key=lambda key: (key[0] == ALL, *key[:2], order[key[2]]))
    }


def _keys(table: str, kind: str, size: float) -> Iterable[tuple[str, str, str]]:
    reach = next(name for least, name in reversed(SIZES) if size >= least)
    return ((table, kind, reach), (table, kind, ALL), (ALL, kind, reach), (ALL, kind, ALL), (ALL, ALL, ALL))


def _errors(values: list[float]) -> Errors:
    off = numpy.array(values)
    size = numpy.abs(off)
    return Errors(len(values), float(numpy.median(size)), float(numpy.quantile(size, 0.9)), float(numpy.median(off)))


def cells(
    before: Mapping[tuple[str, str, str], Errors], after: Mapping[tuple[str, str, str], Errors]
) -> list[tuple[str, ...]]:
    """Rows of a table: table, kind, range of sizes, count, and median and 90th percentile, before and after."""
    return [
        (
            *key,
            str(errors_there.count),
            *(f"{_share(errors.median)} {_share(errors.most)}" for errors in (before[key], errors_there)),
        )
        for key, errors_there in after.items()
    ]


def _share(value: float) -> str:
    return f"{100 * value:>4.0f} %" if value >= 0.1 else f"{100 * value:>4.1f} %"
