"""`nest calibrate`: coefficients of the catalogue from measurements."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import typer

from nest.errors import InputError
from nest.hooks.registry import registry
from nest.public.commands import JSON, share_line, show_paragraph, show_table, to_json, warn
from nest.units import format_seconds, percent

if TYPE_CHECKING:
    from nest_calibrate.cluster import ComparedRun
    from nest_calibrate.generations import ErrorRow
    from nest_calibrate.links import Calibrated
    from nest_calibrate.memory import Share


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    for command in (collectives, devices, memory, cluster):
        group.command()(command)
    app.add_typer(group, name="calibrate", help="Fit devices, links, memory or a cluster to measurements.")


def collectives(
    files: list[Path] = typer.Argument(
        ..., metavar="FILES...", help="Collective times: aiconfigurator, JSON lines or nccl-tests."
    ),
    output: Path | None = typer.Option(None, "--output", "-o", metavar="DIR", help="Write the links into this folder."),
    link: str | None = typer.Option(None, "--link", help="Measured link, as in the catalogue."),
    prior: str = typer.Option("catalogue", help="Starting point of the fit: catalogue or nccl."),
    as_json: bool = JSON,
) -> None:
    """Fit link constants to measured collectives.

    Prints the errors before and after, by table, kind and size. Exit code 0: done; 2: bad input.
    """
    from nest.io import write_text
    from nest_calibrate.collective_measurements import read_collectives
    from nest_calibrate.entries import link_text
    from nest_calibrate.links import CATALOGUE, NCCL, calibrate_links, cells

    _check_prior(prior, CATALOGUE, NCCL)
    _check_folder(output)
    model = next(iter(registry().collective_models().values()))
    doubts: list[str] = []
    with share_line() as tell:
        measured = read_collectives(files, link, doubts.append)
        links = calibrate_links(measured, model, prior, tell, doubts.append)
    _warn(doubts)
    if as_json:
        typer.echo(to_json({"links": {each.link.name: _plain(each) for each in links}, "warnings": doubts}))
    for each in links:
        if not as_json:
            show_paragraph(f"{each.link.name}: median and 90th percentile of relative errors")
            header = ("table", "kind", "bytes", "count", "before", "after")
            rows = cells(each.before, each.after)
            show_table(header, rows, (3, 4, 5), least=(0, 14, 17, 5, 13, 13), ruled=False)
            typer.echo()
        if output is not None:
            write_text(output / f"{each.link.name}.toml", link_text(each.link))


def _check_prior(prior: str, *known: str) -> None:
    if prior not in known:
        raise InputError(f"--prior must be {' or '.join(known)}, is {prior!r:.40}.")


def _warn(doubts: list[str]) -> None:
    """Print what is doubtful."""
    for each in doubts:
        warn(each)


def _check_folder(output: Path | None) -> None:
    from nest.io import there_is

    if output is not None and there_is(output) != "folder":
        raise InputError(f"--output {output}: there is no such folder.")


def _plain(result: Calibrated) -> dict[str, object]:
    from attrs import asdict

    from nest.io import unstructure

    rows = [
        {
            "table": table,
            "kind": kind,
            "bytes": reach,
            "before": asdict(result.before[table, kind, reach]),
            "after": asdict(after),
        }
        for (table, kind, reach), after in result.after.items()
    ]
    return {"entry": unstructure(result.link), "errors": rows}


def devices(
    files: list[Path] = typer.Argument(..., metavar="FILES...", help="Measured runs and operators (JSON lines)."),
    device: str | None = typer.Option(None, "--device", help="Device of the operators: a name or a file."),
    folds: int = typer.Option(8, "--folds", min=2, help="Folds of the cross-validation."),
    prior: str = typer.Option("catalogue", help="Starting point of the fit: catalogue or published."),
    without: list[str] = typer.Option(
        [], "--without", metavar="GROUP", help="Leave out this group of runs; repeatable."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="DIR", help="Write one file per device into this folder."
    ),
    generations: bool = typer.Option(False, "--generations", help="Write one file per generation instead."),
    as_json: bool = JSON,
) -> None:
    """Fit device coefficients to measured runs and operators.

    Prints mean and median errors by group: before, fitted and cross-validated. Exit code 0: done; 2: bad input.
    """
    from nest.io import unstructure, write_text
    from nest_calibrate.entries import calibration_text, device_text, file_name
    from nest_calibrate.generations import CATALOGUE, PUBLISHED, calibrate_devices, error_rows

    _check_folder(output)
    _check_prior(prior, CATALOGUE, PUBLISHED)
    doubts: list[str] = []
    with share_line() as tell:
        result = calibrate_devices(files, registry(), device, folds, tell, prior, without, doubts.append)
    _warn(doubts)
    rows = error_rows(result)
    if as_json:
        fits = [{"devices": [one.name for one in each.devices], **unstructure(each.calibration)} for each in result]
        typer.echo(to_json({"calibrations": fits, "errors": [_row(row) for row in rows], "warnings": doubts}))
    else:
        typer.echo("absolute relative errors: mean, median")
        header = ("group", "count", "before", "fitted", "cross-validated")
        cells = [(row.group, str(row.count), *map(_shares, _columns(row).values())) for row in rows]
        show_table(header, cells, (1, 2, 3, 4), least=(0, 5, 16, 16, 16), ruled=False)
    if output is None:
        return
    texts = {each.calibration.name: calibration_text(each.calibration) for each in result}
    if not generations:
        texts = {spec.name: device_text(each.calibration.on(spec)) for each in result for spec in each.devices}
    for name, text in texts.items():
        write_text(output / file_name(name), text)


def _row(row: ErrorRow) -> dict[str, object]:
    errors = {name: {"mean": mean, "median": median} for name, (mean, median) in _columns(row).items()}
    return {"group": row.group, "count": row.count, **errors}


def _columns(row: ErrorRow) -> dict[str, tuple[float, float]]:
    return {"before": row.before, "after": row.after, "cross_validated": row.validated}


def _shares(errors: tuple[float, float]) -> str:
    mean, median = errors
    return f"{100 * mean:.1f} % {100 * median:>5.1f} %"


def memory(
    files: list[Path] = typer.Argument(
        ..., metavar="FILES...", help="Runs that fitted or ran out of memory (JSON lines)."
    ),
    risk: float | None = typer.Option(None, "--risk", help="Accepted share of failing launches; default 0.2."),
    prior: str = typer.Option("catalogue", help="Starting point of the fit: catalogue or none."),
    output: Path | None = typer.Option(None, "--output", "-o", metavar="FILE", help="Write the fit to this file."),
    as_json: bool = JSON,
) -> None:
    """Fit the error of memory estimates to runs that fitted or failed.

    Mark failed runs with `"measured": {"fits": false}`. The last line goes into `training` of a problem. Exit code 0:
    done; 2: bad input.
    """
    from attrs import asdict

    from nest.io import write_text
    from nest.public.planning import RISK
    from nest_calibrate.memory import USUAL, doubt_memory, error_text, fit, left_out, of_stacks, shares, verdicts

    risk = RISK if risk is None else risk
    if not 0.001 <= risk <= 0.999:
        raise InputError(f"--risk is {risk:g}; it must be from 0.001 to 0.999.")
    _check_prior(prior, "catalogue", "none")
    doubts: list[str] = []
    with share_line() as tell:
        seen = verdicts(files, registry(), tell, doubts.append)
    begun = USUAL if prior == "none" else None
    figures, others = fit(seen, begun), left_out(seen, begun)
    stacks = of_stacks(seen, figures)
    doubt_memory(seen, figures, others, begun, doubts.append)
    _warn(doubts)
    fitted, validated = shares(seen, risk, lambda _: figures), shares(seen, risk, others.__getitem__)
    margin = figures.factor(risk) - 1
    if as_json:
        rows = {"fitted": [asdict(each) for each in fitted], "without_the_source": [asdict(each) for each in validated]}
        rest = {**rows, "stacks": {name: asdict(each) for name, each in stacks.items()}, "warnings": doubts}
        typer.echo(to_json({"error": asdict(figures), "risk": risk, "margin": margin, **rest}))
    else:
        _show_memory(fitted, validated)
        peaks = median([each.peak / each.estimate for each in seen if each.peak is not None] or [1.0])
        less = f"Measured peaks are {peaks:.3f} times the estimate (median), but nest never lowers an estimate. "
        show_paragraph(
            f"{less if peaks < 1 and round(figures.median, 3) == 1 else ''}Runs count as needing {figures.median:.3f} "
            f"times the estimate (median); {percent(figures.spread)} standard deviation."
        )
        for name, each in stacks.items():
            show_paragraph(
                f"On stack {name}: {each.median:.3f} times, {percent(each.spread)}, from sources that list failures."
            )
        show_paragraph(f"For a risk of {risk:g} write `training: {{memory_margin: {max(margin, 0.0):.3f}}}`.")
    if output is not None:
        names = " ".join(path.name for path in files)
        sources = [f"nest calibrate memory {names}: likelihood of {len(seen)} runs, {len(others)} sources alike"]
        write_text(output, error_text(figures, sources, stacks))


def _show_memory(fitted: list[Share], validated: list[Share]) -> None:
    header = (
        "source",
        "ran",
        "rejected",
        "rejected if left out",
        "failed",
        "accepted",
        "accepted if left out",
        "peaks off by",
    )
    rows = [
        (
            each.group,
            str(each.ran),
            str(each.refused),
            str(other.refused),
            str(each.failed),
            str(each.promised),
            str(other.promised),
            "-" if each.peak_error is None else f"{percent(each.peak_error)}",
        )
        for each, other in zip(fitted, validated, strict=True)
    ]
    show_table(header, rows, (1, 2, 3, 4, 5, 6, 7), ruled=False)


def cluster(
    files: list[Path] = typer.Argument(..., metavar="RUNS...", help="Runs on one cluster (JSON lines)."),
    plan: Path | None = typer.Option(
        None, "--for", metavar="PLAN", help="Fit the factor of this plan; runs like it count most."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="FILE", help="Write the calibration to this file."
    ),
    as_json: bool = JSON,
) -> None:
    """Fit one correction factor for your cluster from measured runs.

    Three runs give most of the accuracy. Runs with peak_memory, or that failed, also calibrate memory. Exit code 0:
    done; 2: bad input.
    """
    from attrs import asdict

    from nest.io import write_text
    from nest_calibrate.cluster import (
        calibrated,
        calibration_text,
        doubt_level,
        level_lines,
        memory_of,
        planned,
        seen_runs,
    )
    from nest_calibrate.memory import doubt_memory_figures

    doubts: list[str] = []
    with share_line() as tell:
        seen = seen_runs(files, registry(), tell, doubts.append)
    target = None if plan is None else planned(plan, seen)
    names = " ".join([*(path.name for path in files), *([] if plan is None else ["--for", plan.name])])
    figures = calibrated(seen, (f"nest calibrate cluster {names}",), target)
    doubt_level(seen, doubts.append, by_plan=target is not None)
    if (memory := memory_of(seen)) is not None:
        doubt_memory_figures([each.verdict for each in seen], memory, doubts.append)
    _warn(doubts)
    if as_json:
        runs = [asdict(each) for each in seen]
        typer.echo(to_json({"calibration": asdict(figures), "runs": runs, "warnings": doubts}))
    else:
        _show_runs(seen)
        for line in level_lines(seen, figures, plan):
            show_paragraph(line)
        if figures.memory is not None:
            spread = f"Other runs vary by {percent(figures.memory_spread or 0.0)} (standard deviation)"
            peaks = [each.verdict.peak / each.verdict.estimate for each in seen if each.verdict.peak is not None]
            if peaks:
                show_paragraph(f"Measured memory peaks are {median(peaks):.3f} times the estimate (median).")
            show_paragraph(f"nest will multiply memory estimates by {figures.memory:.3f}. {spread}.")
    if output is not None:
        write_text(output, calibration_text(figures))


def _show_runs(seen: list[ComparedRun]) -> None:
    rows = [
        (
            each.name,
            "-" if each.measured is None else format_seconds(each.measured),
            format_seconds(each.predicted),
            "-" if each.measured is None else f"{each.measured / each.predicted:.3f}",
        )
        for each in seen
    ]
    show_table(("run", "measured", "predicted", "ratio"), rows, (1, 2, 3), ruled=False)
