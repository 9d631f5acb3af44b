"""Exporters: what `nest.hooks.protocols.Exporter` promises."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from importlib.resources import files
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from nest.errors import InputError
from nest.hooks.protocols import Exporter
from nest.io import read_text
from nest.spec import PlanDocument
from nest.testing.finding import Finding, Problems, Tally
from nest.testing.limits import refused_within_limits, unsound_limits

SAMPLE_PLANS = (
    "plan.json",
    "infeasible.json",
    "dense.json",
    "experts.json",
    "uneven.json",
    "interleaved.json",
    "zero-3.json",
)
"""Plans that are shipped with the kit: the best one of a small model, and one that says there is none; then what
frameworks are told in different ways: most degrees of a dense model, experts, stages of different sizes, several chunks
a stage, ZeRO 3."""


def sample_plans() -> tuple[PlanDocument, ...]:
    """The plans exporters are tried on."""
    folder = files("nest.testing").joinpath("data")
    return tuple(read_text(folder.joinpath(name).read_text("utf-8"), PlanDocument, name) for name in SAMPLE_PLANS)


def check_exporter(exporter: Exporter, *, plans: Sequence[PlanDocument] | None = None) -> tuple[Finding, ...]:
    """Export plans.

    An exporter may refuse a plan with an `InputError`, but none that is within its `limits`; one at least must be
    exported.

    Args:
        exporter: as `nest_exporters` returns it.
        plans: to be exported; None: small ones of all kinds, and one that is infeasible.
    """
    tally = Tally()
    exported: list[PlanDocument] = []
    for plan in sample_plans() if plans is None else plans:
        where = f"a plan that is {plan.status}"
        tally.run("it writes text under names that stay in a folder", where, _bad_files, exporter, plan, exported)
        tally.run("it says the same every time", where, _unsteady, exporter, plan)
        tally.run("it leaves the plan as it is", where, _changed_plan, exporter, plan)
        if hasattr(exporter, "limits"):
            tally.run("its limits are ones that a search can keep", where, unsound_limits, exporter, plan)
            tally.run("it exports what is within its limits", where, refused_within_limits, exporter, plan)
    tally.run("some plan is exported", "the plans", _nothing_exported, exported)
    return tally.findings()


def _export(exporter: Exporter, plan: PlanDocument) -> Any:
    """The files, made from a copy of the plan; None where it is refused."""
    return _exported(exporter, deepcopy(plan))


def _exported(exporter: Exporter, plan: PlanDocument) -> Any:
    try:
        return exporter.export(plan)
    except InputError:
        return None


def _bad_files(exporter: Exporter, plan: PlanDocument, exported: list[PlanDocument]) -> Problems:
    found = _export(exporter, plan)
    if found is None:
        return
    if not isinstance(found, Mapping):
        yield f"`export` returned {type(found).__name__}; it maps file names to texts"
        return
    if found:
        exported.append(plan)
    for name, text in found.items():
        if not isinstance(name, str) or not name or _escapes(name):
            yield f"{name!r} is not the name of a file in a folder of the user's choice"
        elif not isinstance(text, str):
            yield f"the content of {name!r} is {type(text).__name__}; it must be text"
    lower = [str(name).lower() for name in found]
    if len(set(lower)) < len(lower):
        yield "two names differ in upper and lower case only, which some file systems take for one"


def _escapes(name: str) -> bool:
    """Whether a name leads out of its folder, on any system."""
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    outside = posix.is_absolute() or bool(windows.drive or windows.root)
    return outside or ".." in windows.parts or name.endswith(("/", "\\")) or "\0" in name or not windows.name


def _unsteady(exporter: Exporter, plan: PlanDocument) -> Problems:
    first, second = _export(exporter, plan), _export(exporter, plan)
    if first != second:
        yield "exported twice, the plan gives different files"


def _changed_plan(exporter: Exporter, plan: PlanDocument) -> Problems:
    given = deepcopy(plan)
    _exported(exporter, given)
    if given != plan:
        yield "`export` changed the plan it was given"


def _nothing_exported(exported: Sequence[PlanDocument]) -> Problems:
    if not exported:
        yield "every one was refused or gave no file, so that nothing was looked at; give check_exporter plans it takes"
