"""Python entry points: `nest.report_page` and `nest.study_page`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nest.public.verbs import INSTALLED, restarted

if TYPE_CHECKING:
    import datetime

    from nest.hooks.registry import Registry
    from nest.public.planning import Source
    from nest.spec import PlanDocument


@restarted
def report_page(
    plan: Source | PlanDocument,
    *,
    output: str | Path | None = None,
    without: Collection[str] = (),
    time_limit: float | None = None,
    jobs: int | None = 1,
    date: datetime.date | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> str:
    """A plan as one HTML page that needs no network; the plan is checked first.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`; one that says that nothing is feasible gives a
            page that says so.
        output: file the page is written to; None: it is not written.
        without: parts that are left out, `alternatives`, `frontier` and `sensitivity`: each takes searches.
        time_limit: seconds for each search, after which its best plan so far counts.
        jobs: how many processes search where that takes long, with the same page; None: one for each processor.
        date: that the page shows; None: none.
        progress: called with what is being searched, how many searches are done, and how many there are at most.
        strict_plugins: whether an error of a plug-in ends the call; otherwise its object is disabled with a warning.
        plugins: registered exporters and the like; left out, those installed.

    Returns:
        The page.

    Raises:
        nest.errors.InputError: the plan cannot be read, or its numbers do not hold; there is no part called so; or the
            page cannot be written.
    """
    from nest.io import check_writable, write_text
    from nest.public.questions import processes
    from nest_page.page_of_plan import page_of

    if output is not None:
        check_writable(Path(output), plan)
    page = page_of(plan, plugins, without, time_limit, progress, processes(jobs, plugins), date)
    if output is not None:
        write_text(Path(output), page)
    return page


def study_page(
    result: str | Path,
    *,
    output: str | Path | None = None,
    metric: str | None = None,
    at: Mapping[str, str] | None = None,
    baseline: int | None = None,
    plans: str | Path | None = None,
    date: datetime.date | None = None,
) -> str:
    """The rows of a study as one HTML page that needs no network: curves, heat maps, regions, Pareto front, all rows.

    Args:
        result: what `sweep` wrote, or a study whose result is beside it.
        output: file the page is written to; None: it is not written.
        metric: what figures show of a plan: `step-time`, `samples`, `tokens`, `tokens-per-device`, `mfu` or `cost`;
            None: the step time, or where the batch varies tokens.
        at: by the path of a key that varies, the value, as the page has it, that figures show which do not draw the
            key; left out, the middle one.
        baseline: number of the row that percentages compare with; None: the first of each training with a plan.
        plans: folder that gets every row's plan as a file, which the page leads to; None: they are not written.
        date: that the page shows; None: none.

    Returns:
        The page.

    Raises:
        nest.errors.InputError: there is no such result, metric, key, value or baseline, or something cannot be written.
    """
    from nest.io import check_writable, write_text
    from nest_page.page_of_study import page_of_study

    page_file = None if output is None else Path(output)
    if page_file is not None:
        check_writable(page_file, result)
    folder = None if plans is None else Path(plans)
    page = page_of_study(Path(result), metric, at or {}, folder, page_file and page_file.parent, date, baseline)
    if page_file is not None:
        write_text(page_file, page)
    return page
