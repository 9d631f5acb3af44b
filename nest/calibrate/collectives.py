"""Protocols of links fitted to measured collectives, and how far a link is from them by table, kind and size."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from nest.calibrate.collective_measurements import Measurement
from nest.calibrate.robust_fit import Prior, robust_fit
from nest.catalogue import Link, network_levels
from nest.catalogue.entries import LinkLine
from nest.instance import CollectiveModel, Level
from nest.spec import LevelSpec
from nest.units import BytesPerSecond

Array = NDArray[numpy.float64]

NOISE = 0.05
"""Relative error expected of a measurement: two tables of one machine and library differ by as much in the median."""

OUTLIER = 0.1
"""Relative error beyond which a measurement counts less and less."""

BELIEF, OWN_BELIEF = 1.0, 0.5
"""Standard deviations before measuring: of logarithms, so a factor of e either way, and of own shares."""

LIMITS = ((0.1e-6, 500e-6), (0.01e-6, 100e-6), (0.01, 1.0))
"""What the base and the step in seconds, and the efficiency of a protocol can be."""

STARTS = 12
"""How often a fit is started: which protocol serves which sizes makes many local optima."""

DIGITS = 3
"""Significant digits of fitted coefficients."""


@frozen(eq=False)
class Group:
    """Measurements that differ in bytes and seconds only.

    Attributes:
        kind: of collective.
        shape: members per group of each level, innermost first.
        levels: the network, innermost first.
        nominal: bytes per second of the outermost level before protocols take their share.
        bytes: of each.
        seconds: of each.
    """

    kind: str
    shape: tuple[int, ...]
    levels: tuple[Level, ...]
    nominal: float
    bytes: Array
    seconds: Array

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
    found: dict[tuple[object, ...], list[Measurement]] = {}
    for each in measurements:
        found.setdefault((each.kind, each.shape, each.links, each.bandwidths), []).append(each)
    return [_group(link, rows) for rows in found.values()]


def _group(link: Link, rows: Sequence[Measurement]) -> Group:
    first = rows[0]
    written = [
        LevelSpec(members, None if bandwidth is None else BytesPerSecond(bandwidth), None, None, name)
        for members, name, bandwidth in zip(first.shape, first.links, first.bandwidths, strict=True)
    ]
    levels = network_levels(written, first.table)
    nominal = first.bandwidths[-1] or link.bandwidth or levels[-1].bandwidth / link.efficiency
    sizes, seconds = (numpy.array(each) for each in zip(*((row.bytes, row.seconds) for row in rows), strict=True))
    return Group(first.kind, first.shape, levels, nominal, sizes, seconds)


def fit_link(
    link: Link, groups: Sequence[Group], model: CollectiveModel, progress: Callable[[str, int], None] | None = None
) -> Link:
    """`link` with the lines under which `model` comes closest to the measurements.

    The link's lines are where the fit begins and what it stays at where nothing is measured: each coefficient is
    believed to a factor of e, each measurement to 5 %, and those off by more than 10 % count less (soft L1). Lines of
    different kinds share no coefficient, so each kind is fitted on its own.

    Args:
        link: of the catalogue.
        groups: measured on it.
        model: prices collectives.
        progress: called with what is fitted next, and how many groups are fitted.
    """
    fitted, done = dict(enumerate(link.lines)), 0
    for kinds in dict.fromkeys(line.kinds for line in link.lines):
        relevant = [group for group in groups if group.kind in kinds]
        chosen = [index for index, line in enumerate(link.lines) if line.kinds == kinds]
        if relevant:
            if progress is not None:
                progress(f"fitting {', '.join(kinds)} of {link.name}", done)
            done += len(relevant)
            fitted.update(zip(chosen, _fit_kinds(link, chosen, relevant, model), strict=True))
    return evolve(link, lines=tuple(fitted.values()))


def _fit_kinds(link: Link, chosen: list[int], groups: Sequence[Group], model: CollectiveModel) -> list[LinkLine]:
    """The chosen lines of `link`, which serve the same kinds, fitted."""
    lines = [link.lines[index] for index in chosen]
    measured = numpy.concatenate([group.seconds for group in groups])

    def residuals(coefficients: Array) -> Array:
        trial = dict(enumerate(link.lines)) | dict(zip(chosen, _lines(lines, coefficients), strict=True))
        candidate = evolve(link, lines=tuple(trial.values()))
        found: Array = numpy.concatenate([group.predicted(candidate, model) for group in groups])
        off: Array = numpy.log(found / measured)
        return off

    return [_rounded(line) for line in _lines(lines, robust_fit(residuals, _prior(lines), OUTLIER, NOISE, STARTS))]


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


SIZES = ((0.0, "below 256 KiB"), (2.0**18, "256 KiB to 16 MiB"), (2.0**24, "16 MiB on"))
"""Least bytes of each range of sizes: where latency counts, where both do, and where bandwidth does."""

ALL = "all"


@frozen
class Errors:
    """Relative errors of predictions.

    Attributes:
        count: how many.
        median: of their absolute values.
        most: the 90th percentile of their absolute values.
        bias: the median with its sign.
    """

    count: int
    median: float
    most: float
    bias: float


def errors(
    measurements: Sequence[Measurement], link: Link, model: CollectiveModel
) -> dict[tuple[str, str, str], Errors]:
    """Errors of `link` by table, kind and range of sizes; `all` stands for all of one of these."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for table in dict.fromkeys(each.table for each in measurements):
        for group in grouped([each for each in measurements if each.table == table], link):
            off = (group.predicted(link, model) / group.seconds - 1.0).tolist()
            for size, error in zip(group.bytes.tolist(), off, strict=True):
                for key in _keys(table, group.kind, size):
                    found.setdefault(key, []).append(error)
    order = {name: index for index, (_, name) in enumerate((*SIZES, (0.0, ALL)))}
    return {key: _errors(found[key]) for key in sorted(found, key=lambda key: (key[0] == ALL, *key[:2], order[key[2]]))}


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
        (*key, str(found.count), *(f"{_share(errors.median)} {_share(errors.most)}" for errors in (before[key], found)))
        for key, found in after.items()
    ]


def _share(value: float) -> str:
    return f"{100 * value:>4.0f} %" if value >= 0.1 else f"{100 * value:>4.1f} %"
