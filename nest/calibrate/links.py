"""Links of the catalogue fitted to measured collectives, and how far each is from them by table, kind and size.

Without a better prior, fits begin at the constants NCCL plans with.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy
from attrs import evolve, frozen

from nest.calibrate.collective_measurements import Measurement
from nest.calibrate.entries import FITTED
from nest.calibrate.robust_fit import Prior, robust_fit
from nest.catalogue import Link, network_levels
from nest.catalogue import link as entry
from nest.catalogue.entries import LinkLine
from nest.instance import Array, CollectiveModel, Level
from nest.spec import LevelSpec
from nest.units import BytesPerSecond

CATALOGUE, NCCL = "catalogue", "nccl"
"""What a fit begins at: the catalogue's lines of the link, or the constants NCCL plans with."""


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
) -> list[Calibrated]:
    """Each link that measurements tell of, the outermost of each, fitted to them, by name.

    Args:
        measurements: of collectives.
        model: prices collectives.
        prior: `catalogue` or `nccl`: what each fit begins at and stays near where nothing is measured. A link without
            lines in the catalogue begins at NCCL's constants in any case.
        progress: called with what is being done, and which share of the measurements is fitted.

    Raises:
        InputError: a link is unknown, or a level has no bandwidth.
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
        calibrated.append(_calibrated(name, by_link[name], model, prior, fitting))
    return calibrated


def _calibrated(
    name: str, measured: list[Measurement], model: CollectiveModel, prior: str, progress: Callable[[str, float], None]
) -> Calibrated:
    known = entry(name, measured[0].table)
    begun = known if prior == CATALOGUE and known.lines else evolve(known, lines=planned_lines(known))
    groups = grouped(measured, known)
    fitted = fit_link(begun, groups, model, lambda doing, done: progress(doing, done / len(groups)))
    before, after = errors(measured, known, model), errors(measured, fitted, model)
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


GATHERS = ("all_gather", "reduce_scatter")

BASE = {"LL": 3.6e-6, "LL128": 10.0e-6, "Simple": 8.4e-6}
"""Seconds of a call by protocol (NVIDIA/nccl@01afd20 src/graph/tuning.cc, `baseLat` of the ring)."""

STEP = {
    "nvlink": {"LL": 0.47e-6, "LL128": 1.9e-6, "Simple": 3.4e-6},
    "pcie": {"LL": 1.0e-6, "LL128": 2.5e-6, "Simple": 5.7e-6},
    "network": {"LL": 2.7e-6, "LL128": 4.0e-6, "Simple": 9.6e-6},
}
"""Seconds of a ring's step by kind of link and protocol (the same file, `hwLat` of the ring)."""

SHARE = {"LL": 1 / 3, "LL128": 0.92, "Simple": 1.0}
"""Share of a ring's bandwidth that a protocol reaches: its flags take the rest (the same file)."""

MESSAGES = {"LL": "LL", "Simple, few channels": "LL128", "Simple": "Simple"}
"""Ways in which NCCL sends messages, of which it makes its all-to-all, and the ring's protocol whose constants they are
believed to have. Large messages get more channels (NVIDIA/nccl src/enqueue.cc)."""

SWITCH_BASE = 23e-6
"""Seconds of an all-reduce in the switch (`hwLat` of NVLS in the same file of NCCL 2.18 and later)."""

SWITCH_MEMBERS = 5
"""Fewest devices for which NCCL reduces in the switch: measured on H200 with NCCL_ALGO left open
(stas00/ml-engineering@744d01e network/README.md, NVLink SHARP)."""

REDUCING = ("nvlink4",)
"""Links whose switches NCCL lets reduce: since the third NVSwitch (NVIDIA H100 Tensor Core GPU Architecture, 2022).
Those of NVLink 5 could, but up to 4 GiB NCCL stays with rings there: 741 GB/s on 8 B200, more only beyond
(stas00/ml-engineering@744d01e network/README.md)."""


def planned_lines(link: Link) -> tuple[LinkLine, ...]:
    """The protocols NCCL has for rings, for messages and for switches on `link`, with the constants it plans with.

    The widest reaches the link's efficiency. A member's own share costs half of one received on links that devices
    drive themselves, and nothing where a network card does; there all rings are believed alike, since few are measured.
    """
    kind = next((name for name in STEP if link.name.startswith(name)), "network")
    own = 0.0 if kind == "network" else 0.5
    rings = [(*GATHERS, "all_reduce")] if kind == "network" else [GATHERS, ("all_reduce",)]
    uses = [(kinds, name, name) for kinds in rings for name in BASE]
    uses += [(("all_to_all",), name, like) for name, like in MESSAGES.items()]
    lines = [
        LinkLine(name, kinds, BASE[like], STEP[kind][like], SHARE[like] * link.efficiency, own)
        for kinds, name, like in uses
    ]
    if link.name in REDUCING:
        step = STEP[kind]["LL"]
        lines.append(LinkLine("NVLS", ("all_reduce",), SWITCH_BASE, step, link.efficiency, 0.0, True, SWITCH_MEMBERS))
    return tuple(lines)


@frozen(eq=False)
class Group:
    """Measurements that differ in bytes and seconds only.

    Attributes:
        kind: of collective.
        shape: members per group of each level, innermost first.
        levels: the network, innermost first.
        nominal: bytes per second of the outermost level before protocols take their share.
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
    return Group(first.kind, first.shape, levels, nominal, sizes, seconds)


def fit_link(
    link: Link, groups: Sequence[Group], model: CollectiveModel, progress: Callable[[str, int], None] | None = None
) -> Link:
    """`link` with the lines under which `model` comes closest to the measurements.

    The link's lines are where the fit begins and what it stays at where nothing is measured: each coefficient is
    believed to a factor of e, each measurement to 5 %, and those off by more than 10 % count less (soft L1). Lines of
    different kinds share no coefficient, so each kind is fitted on its own. `progress` is called with what is fitted
    next, and how many groups are fitted.
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
        seconds: Array = numpy.concatenate([group.predicted(candidate, model) for group in groups])
        off: Array = numpy.log(seconds / measured)
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
