"""From measured collectives to entries of the catalogue; without a better prior, fits begin at NCCL's constants."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import evolve, frozen

from nest.calibrate.collective_measurements import Measurement, merged, read_lines, read_output, read_table
from nest.calibrate.collectives import ALL, Errors, errors, fit_link, grouped
from nest.calibrate.entries import FITTED
from nest.catalogue import Link
from nest.catalogue import link as entry
from nest.catalogue.entries import LinkLine
from nest.errors import InputError
from nest.instance import CollectiveModel

CATALOGUE, NCCL = "catalogue", "nccl"
"""What a fit begins at: the catalogue's lines of the link, or the constants NCCL plans with."""


@frozen
class Calibrated:
    """A link fitted to measurements.

    Attributes:
        link: the new entry.
        before: errors of the catalogue's entry by table, kind and range of sizes.
        after: errors of the new one.
    """

    link: Link
    before: Mapping[tuple[str, str, str], Errors]
    after: Mapping[tuple[str, str, str], Errors]


def read_collectives(paths: Sequence[Path], link: str | None = None) -> list[Measurement]:
    """The collectives in tables (`.parquet`), JSON lines (`.jsonl`) and outputs of nccl-tests (anything else).

    Args:
        paths: the files.
        link: of the catalogue, where the measurements do not say; in tables and outputs, in place of what they say.

    Raises:
        InputError: a file cannot be read or used, or none has a collective.
    """
    found = [each for path in paths for each in _read(path, link)]
    if not found:
        raise InputError(f"{', '.join(map(str, paths)):.200}: no measured collective in here.")
    return merged(found)


def _read(path: Path, link: str | None) -> Iterator[Measurement]:
    if path.suffix == ".parquet":
        return read_table(path, link)
    if path.suffix == ".jsonl":
        return read_lines(path, link)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.") from None
    return read_output(path, text, link)


def calibrate_links(
    measurements: Sequence[Measurement],
    model: CollectiveModel,
    prior: str = CATALOGUE,
    progress: Callable[[str, float], None] | None = None,
) -> list[Calibrated]:
    """Each link that measurements tell of, fitted to them, by name.

    Args:
        measurements: of collectives; the outermost link of each is what it tells of.
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
    found: list[Calibrated] = []

    def fitting(doing: str, share: float) -> None:
        if progress is not None:
            done = sum(len(by_link[each.link.name]) for each in found)
            progress(doing, (done + share * len(by_link[name])) / len(measurements))

    for name in sorted(by_link):
        found.append(_calibrated(name, by_link[name], model, prior, fitting))
    return found


def _calibrated(
    name: str, measured: list[Measurement], model: CollectiveModel, prior: str, progress: Callable[[str, float], None]
) -> Calibrated:
    known = entry(name, measured[0].table)
    begun = known if prior == CATALOGUE and known.lines else evolve(known, lines=planned_lines(known))
    groups = grouped(measured, known)
    fitted = fit_link(begun, groups, model, lambda doing, done: progress(doing, done / len(groups)))
    before, after = errors(measured, known, model), errors(measured, fitted, model)
    kept = tuple(source for source in known.sources if not source.startswith(FITTED))
    return Calibrated(evolve(fitted, sources=(*kept, _source(measured, after, prior))), before, after)


def _source(measured: Sequence[Measurement], after: Mapping[tuple[str, str, str], Errors], prior: str) -> str:
    found = after[ALL, ALL, ALL]
    tables = ", ".join(sorted({each.table.removesuffix(".parquet") for each in measured}))
    begun = "NCCL's planning constants" if prior == NCCL else "the catalogue's"
    return (
        f"{FITTED}robust least squares of relative errors of {found.count} collectives ({tables}), begun at {begun} "
        f"(nest calibrate collectives); error in the median {100 * found.median:.1f} %, 90th percentile "
        f"{100 * found.most:.1f} %"
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
