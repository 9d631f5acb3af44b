"""`nest report`: a plan, or the rows of a study, as one HTML page."""

from datetime import UTC, date, datetime
from os import environ
from pathlib import Path
from typing import Any

import typer

from nest.errors import InputError
from nest.public.commands import STRICT_PLUGINS, StepLine, warn_of_plugins
from nest.public.commands import time_limit as time_limit_option
from nest_page import verbs

USUAL_OUTPUT = Path("report.html")
"""In the current folder, where nobody says another place."""


def report(
    source: Path = typer.Argument(..., metavar="PLAN|STUDY|RESULT", help="Plan, study, or output of `nest sweep`."),
    output: Path = typer.Option(USUAL_OUTPUT, "--output", "-o", metavar="FILE", help="Write the page to this file."),
    without: list[str] = typer.Option(
        [], "--without", metavar="PART", help="Skip alternatives, frontier or sensitivity; repeatable."
    ),
    time_limit: float | None = time_limit_option(
        "Of a plan: time for each search; then the best plan so far is taken."
    ),
    jobs: int | None = typer.Option(None, "--jobs", "-j", metavar="N", help="Search processes; default: one per CPU."),
    metric: str | None = typer.Option(
        None, "--metric", metavar="NAME", help="Study: step-time, samples, tokens, mfu or cost."
    ),
    at: list[str] = typer.Option([], "--at", metavar="KEY=VALUE", help="Study: show this value of a key; repeatable."),
    baseline: int | None = typer.Option(
        None, "--baseline", metavar="N", help="Study: compare with row N; default: the first."
    ),
    plans: Path | None = typer.Option(
        None, "--plans", metavar="FOLDER", help="Study: write all plans here and link them."
    ),
    shown_date: str | None = typer.Option(
        None, "--date", metavar="DATE", help="Date on the page; default: SOURCE_DATE_EPOCH, else none."
    ),
    row: int | None = typer.Option(None, "--row", metavar="N", help="Study: report on the plan of row N."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Write a plan or a study as one self-contained HTML page.

    A plan is checked first. Its alternatives and sensitivity sections run extra searches; skip them with `--without`.
    Exit code 0: done; 2: bad input.
    """
    from nest.io import check_writable

    check_writable(output, source)
    day = _day(shown_date)
    if row is None and _is_study(source):
        _refuse("a plan", without=without or None, time_limit=time_limit, jobs=jobs)
        verbs.study_page(
            source,
            output=output,
            metric=metric,
            at=dict(map(_key_and_value, at)),
            baseline=baseline,
            plans=plans,
            date=day,
        )
    else:
        _refuse("a study", metric=metric, at=at or None, baseline=baseline, plans=plans)
        _plan_page(source, output, row, without, time_limit, jobs, day)
    typer.echo(output)


def _plan_page(
    source: Path,
    output: Path,
    row: int | None,
    without: list[str],
    time_limit: float | None,
    jobs: int | None,
    day: date | None,
) -> None:
    from nest.io import write_text

    read: Path | dict[str, Any] = source
    if row is not None:
        from nest_studies.sweep.rows import plan_of

        read = plan_of(source, row)
    line = StepLine()
    try:
        text = verbs.report_page(
            read,
            without=without,
            time_limit=time_limit,
            jobs=jobs,
            date=day,
            progress=lambda search, done, most: line.tell(search, done, most, at_most=True),
        )
    finally:
        line.clear()
    warn_of_plugins()
    write_text(output, text)


def _is_study(source: Path) -> bool:
    """Return whether a file has rows of a sweep, or is a study; a pipe, which can be read once, has a plan."""
    from nest.io import read_mapping
    from nest_studies.sweep.output import is_result

    return is_result(source) or (source.is_file() and "base" in read_mapping(source).mapping)


def _day(written: str | None) -> date | None:
    """Return the date as written, or the date of a reproducible build (reproducible-builds.org), or none."""
    seconds = environ.get("SOURCE_DATE_EPOCH")
    try:
        if written is not None:
            return date.fromisoformat(written)
        return datetime.fromtimestamp(int(seconds), UTC).date() if seconds else None
    except (ValueError, OverflowError, OSError):
        if written is not None:
            raise InputError(f"--date {written}: write it as YYYY-MM-DD.") from None
        raise InputError(f"SOURCE_DATE_EPOCH={seconds}: write it as seconds since 1970.") from None


def _refuse(of: str, **options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')} goes with {of} only.")


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--at {text}: write it as KEY=VALUE, such as 'cluster.memory=80 GB'.")
    return key.strip(), value.strip()
