"""The rows of a study as one HTML page, drawn by `nest_page.study`."""

import datetime
from collections.abc import Mapping
from json import dumps, loads
from pathlib import Path

from nest.catalogue import unknown_name
from nest.errors import InputError
from nest.io import write_files
from nest_page.records import Heading
from nest_page.study import study_page
from nest_page.study.base_problem import Shared
from nest_page.study.points import METRICS, Study, study_of, usual_metric
from nest_page.study.words import LABEL, value_in_words
from nest_studies.sweep.output import is_result
from nest_studies.sweep.rows import result_of, result_rows, study_point, varied_columns

PLANS_TOGETHER = 500
"""Plans of a study that are in memory at a time, each of some 10 kB."""


def page_of_study(
    path: Path,
    metric: str | None,
    held: Mapping[str, str],
    plans: Path | None,
    linked_from: Path | None,
    date: datetime.date | None,
    baseline: int | None,
) -> str:
    """The HTML page of a study's rows (`nest.study_page`, which says what the arguments are).

    Args:
        path: a result, or a study whose result is beside it.
        metric: of `nest_page.study.points.METRICS`; None: the usual one.
        held: by the name of a key, the value that figures which do not draw it show.
        plans: folder that the plans are written to, which the page refers to; None: they are not written.
        linked_from: the folder of the page; None: the current one.
        date: that the page shows; None: none.
        baseline: number of the row that percentages compare with; None: the first of each training with a plan.

    Raises:
        InputError: there is no such result, metric, value or baseline, or plans cannot be written.
    """
    result = path if is_result(path) else result_of(path)
    columns = varied_columns(result)
    refers = "" if plans is None else _relative(plans, linked_from or Path())
    points, texts, shared = [], {}, Shared()
    for number, row in enumerate(result_rows(result), 1):
        name, plan = f"row-{number}.json", row["plan"]
        try:
            row = {**row, "plan": loads(plan) if isinstance(plan, str) and plan else plan}
            shared.add(row["plan"])
            points.append(study_point(number, row, columns, f"{refers}{name}" if plans is not None else ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{result}: row {number} is none that this version of `nest sweep` writes.") from None
        if plans is not None and points[-1].link:
            texts[name] = plan if isinstance(plan, str) else dumps(plan, ensure_ascii=False)
            if len(texts) == PLANS_TOGETHER:
                write_files(plans, texts)
                texts.clear()
    if plans is not None:
        write_files(plans, texts)
    if not points:
        raise InputError(f"{result}: it has no rows.")
    if baseline is not None and not any(each.number == baseline and each.batch_time is not None for each in points):
        raise InputError(f"--baseline {baseline}: {result} has no such row with a plan.")
    study = study_of(columns, points, shared.problem, baseline)
    if metric is not None and metric not in METRICS:
        raise unknown_name("--metric", "figure of a plan", metric, METRICS)
    chosen = usual_metric(study) if metric is None else METRICS[metric]
    how = (
        f"The number of a row leads to its plan's document in `{plans}`."
        if plans is not None
        else f"`nest report {result} --row N` reports on the plan of row N; with `--plans FOLDER`, the page of a study "
        "leads to the documents of all plans."
    )
    heading = Heading(shared.title(study), shared.sizes(), about=(("Study", f"`{_study_title(path)}`"),), date=date)
    return study_page(heading, study, chosen, _held(study, held), how, shared.sections())


def _study_title(path: Path) -> str:
    """Name a study after its file, or after its folder if the file's name says nothing."""
    usual = path.stem in ("study", "rows", "results", "result")
    return (path.absolute().parent.name if usual else path.stem) or path.stem


def _relative(folder: Path, start: Path) -> str:
    """A reference to files in a folder from a page in `start`."""
    from os.path import relpath
    from urllib.parse import quote

    return quote(Path(relpath(folder, start)).as_posix()) + "/"


def _held(study: Study, wanted: Mapping[str, str]) -> dict[int, int]:
    """Values of axes by index.

    Raises:
        InputError: no such key varies, or it has no such value.
    """
    held = {}
    names = [study.axes[index].key.removeprefix(LABEL) for index in study.varying]
    for name, value in wanted.items():
        if name not in names:
            raise unknown_name("--at", "key that varies", name, names)
        index = study.varying[names.index(name)]
        words = value_in_words(study.axes[index].key, value)
        value = value if value in study.axes[index].values else words
        if value not in study.axes[index].values:
            raise unknown_name(f"--at {name}", "value", value, study.axes[index].values)
        held[index] = study.axes[index].values.index(value)
    return held
