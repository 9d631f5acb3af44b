"""From files of measured collectives to entries of the catalogue."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import evolve, frozen

from nest.calibrate.collective_lines import read_lines
from nest.calibrate.collectives import fit_link, grouped, merged
from nest.calibrate.errors import ALL, Errors, errors
from nest.calibrate.link_file import FITTED
from nest.calibrate.measurement import Measurement
from nest.calibrate.nccl_constants import planned_lines
from nest.calibrate.nccl_tables import read_output, read_table
from nest.catalogue import Link
from nest.catalogue import link as entry
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
        progress: told what is being done, and which share of the measurements is fitted.

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
    name: str, told: list[Measurement], model: CollectiveModel, prior: str, progress: Callable[[str, float], None]
) -> Calibrated:
    known = entry(name, told[0].table)
    begun = known if prior == CATALOGUE and known.lines else evolve(known, lines=planned_lines(known))
    groups = grouped(told, known)
    fitted = fit_link(begun, groups, model, lambda doing, done: progress(doing, done / len(groups)))
    before, after = errors(told, known, model), errors(told, fitted, model)
    kept = tuple(source for source in known.sources if not source.startswith(FITTED))
    return Calibrated(evolve(fitted, sources=(*kept, _source(told, after, prior))), before, after)


def _source(told: Sequence[Measurement], after: Mapping[tuple[str, str, str], Errors], prior: str) -> str:
    found = after[ALL, ALL, ALL]
    tables = ", ".join(sorted({each.table.removesuffix(".parquet") for each in told}))
    begun = "NCCL's planning constants" if prior == NCCL else "the catalogue's"
    return (
        f"{FITTED}robust least squares of relative errors of {found.count} collectives ({tables}), begun at {begun} "
        f"(nest calibrate collectives); error in the median {100 * found.median:.1f} %, 90th percentile "
        f"{100 * found.most:.1f} %"
    )
