"""Files of frameworks, launchers and other tools for a plan, by registered exporters."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from attrs import evolve, field, frozen

from nest.catalogue import unknown_name
from nest.deployment import Limits, violations
from nest.errors import InputError
from nest.formulate.pools import on_only_pool, takes_pools
from nest.formulate.target import ANY_PROBLEM, limits_of
from nest.hooks.protocols import Exporter
from nest.hooks.registry import Registry, registry
from nest.io import structure
from nest.report.plan_summary import upper_memory
from nest.spec import PlanDocument, Problem
from nest.units import format_bytes
from nest.whatif.nearest_plan import Nearest, Search, nearest_plan


@frozen
class Exported:
    """Results of exporters."""

    files: Mapping[str, str]  # Contents by file name, in the order of the exporters.
    warnings: tuple[str, ...]  # Before use, a sentence each.
    # By exporter, the replacement for a plan that its framework cannot run.
    nearest: Mapping[str, Nearest] = field(factory=dict)

    @property
    def plans(self) -> dict[str, str]:
        """Nearest plans as files: `plan.json`, or one for each of several exporters."""
        return {
            "plan.json" if len(self.nearest) == 1 else f"plan-{re.sub(r'[^A-Za-z0-9._-]', '-', name)}.json": json.dumps(
                nearest.plan.to_dict(), indent=2, allow_nan=False, ensure_ascii=False
            )
            + "\n"
            for name, nearest in self.nearest.items()
        }


class NothingNear(InputError):  # noqa: N818 - no mistake, but an answer
    """A framework can run no feasible plan near the given one."""


def export_checked(
    read: PlanDocument,
    to: Sequence[str],
    known: Registry,
    search: Search | None = None,
    before: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    release: str | None = None,
) -> Exported:
    """Export a feasible plan whose numbers hold.

    Args:
        read: the plan.
        to: names of exporters.
        search: solves problems to find the nearest plan if a framework cannot run this one; None: refuse it.
        before: by framework, earlier files of its exporter for this plan.
        release: of the framework that the files are for; None: the newest.

    Raises:
        NothingNear: an exporter's framework can run no feasible plan.
        InputError: there is no such exporter; one refuses the plan; or two exporters give files of one name.
    """
    read = on_only_pool(read)
    files: dict[str, str] = {}
    replaced: dict[str, Nearest] = {}
    needs: list[str] = []
    for name in (each for each in dict.fromkeys(to) if each not in before):
        nearest = _expressible(read, name, search, known, release)
        if nearest is not None:
            replaced[name] = nearest
    for name in dict.fromkeys(to):
        exported = replaced[name].plan if name in replaced else _run_by(read, to, replaced, known)
        made = before.get(name)
        if made is None:
            # One that fails is disabled, which ends here: no other would give what was asked for. Each has its own
            # copy.
            made = known.run(
                lambda name=name, plan=exported: exporter_called(name, known, release).export(deepcopy(plan))  # type: ignore[misc]
            )
        clash = next((file for file in made if files.get(file, made[file]) != made[file]), None)
        if clash is not None:
            raise InputError(f"{name!r} and another exporter both write {clash!r}; export to one at a time.")
        files |= made
        needs += getattr(exporter_called(name, known, release), "needs", lambda _: ())(made)
    warnings = _warnings(read) if len(replaced) < len(set(to)) else ()
    return Exported(files, (*warnings, *needs), replaced)


def _run_by(plan: PlanDocument, to: Iterable[str], replaced: Mapping[str, Nearest], known: Registry) -> PlanDocument:
    """Plan as run: if exported to one framework, with that framework as its target.

    So launchers know the order of ranks.
    """
    frameworks = [name for name in dict.fromkeys(to) if hasattr(exporter_called(name, known), "limits")]
    if len(frameworks) != 1:
        return plan
    (framework,) = frameworks
    run = replaced[framework].plan if framework in replaced else plan
    return evolve(run, problem={**run.problem, "search": {**run.problem.get("search", {}), "target": framework}})


def _expressible(
    plan: PlanDocument, name: str, search: Search | None, known: Registry, release: str | None
) -> Nearest | None:
    """Replacement for a plan beyond the limits of an exporter's framework; None: it is within."""
    exporter = exporter_called(name, known, release)
    if not hasattr(exporter, "limits"):
        if plan.problem["cluster"].get("pools") and not takes_pools(exporter):
            raise InputError(f"{name} supports one device type, but the plan's cluster.pools has several.")
        return None
    problem = structure(plan.problem, Problem)
    reasons = violations(plan, known.run(lambda: limits_of(name, problem, known, "--to", release)), name)
    if not reasons:
        return None
    if search is None:
        raise InputError(
            f"{name} cannot run this plan: {'; '.join(reasons)}. Export the nearest plan with `--nearest`, or solve "
            f"again with `--target {name}`."
        )
    nearest = known.run(lambda: nearest_plan(plan, name, known, search))
    if nearest is None:
        raise NothingNear(f"{name} can run no feasible plan of this problem: {'; '.join(reasons)}.")
    return nearest


def exporters(plan: PlanDocument | None = None, *, plugins: Registry | None = None) -> list[dict[str, Any]]:
    """Name, summary, limits, reasons and distribution of every exporter, by name.

    Args:
        plan: limits are those for its problem; None: for a small transformer.
        plugins: registered exporters; None: those installed.
    """
    known = plugins or registry()
    problem = structure(ANY_PROBLEM if plan is None else plan.problem, Problem)
    return known.run(lambda: [_row(each, problem, known) for _, each in sorted(known.exporters().items())])


def _row(exporter: Exporter, problem: Problem, known: Registry) -> dict[str, Any]:
    limits = exporter.limits(problem) if hasattr(exporter, "limits") else None
    distribution, version = known.origin("exporters", exporter.name)
    return {
        "name": exporter.name,
        "summary": str(getattr(exporter, "summary", "")),
        "limits": limits_text(limits),
        "releases": ", ".join(getattr(exporter, "releases", ())),
        "rules": {} if limits is None else dict(limits.constraints),
        "distribution": distribution,
        "version": version,
    }


def limits_text(limits: Limits | None) -> str:
    """`limits` in short; None: there are none."""
    if limits is None:
        return "none stated"
    fresh = Limits()
    lines = [
        _words("strategies", limits.strategies),
        _words("schedules", limits.schedules),
        "ZeRO " + ", ".join(map(str, limits.zero)) if limits.zero != fresh.zero else "",
        _words("recompute", limits.recompute) + (" (also of some blocks)" if limits.partial_recompute else ""),
        _words("rank orders", limits.rank_orders),
        "offload " + ", ".join(limits.offload) if limits.offload else "no offload",
        "equal stages" if limits.even_stages else "",
        "all devices" if limits.all_devices else "",
        "" if limits.mixed else "one candidate for all stages",
        "" if limits.zero_degrees else "ZeRO over all ranks",
        f"{len(limits.constraints)} rule{'s' * (len(limits.constraints) > 1)}" if limits.constraints else "",
    ]
    return "; ".join(part for part in lines if part)


def _words(what: str, names: tuple[str, ...] | None) -> str:
    return "" if names is None else f"{what} {', '.join(names) or 'none'}"


def exporter_called(name: str, known: Registry, release: str | None = None) -> Exporter:
    """Registered exporter of a name, for a release of its framework; None: the newest.

    Raises:
        InputError: there is none.
    """
    exporters = known.exporters()
    if name in known.missing("exporters"):
        raise InputError(f"the exporter {name!r} failed and is disabled; run `nest plugins doctor`.")
    if name not in exporters:
        raise unknown_name("--to", "exporter", name, exporters)
    if release is not None and not hasattr(exporters[name], "for_release"):
        raise InputError(f"--for {release:.40}: the exporter {name!r} writes for no release of a framework.")
    found: Exporter = exporters[name] if release is None else exporters[name].for_release(release)  # type: ignore[attr-defined]
    return found


def _warnings(plan: PlanDocument) -> tuple[str, ...]:
    """Warnings before using the files of `plan`."""
    if plan.fits:
        return ()
    needs = [upper_memory(stage) for stage in plan.stages]
    stage, needed = needs.index(max(needs)), format_bytes(max(needs))
    capacity = plan.summary.get("memory_capacity")
    capacity_text = f" of {format_bytes(capacity)}" if isinstance(capacity, (int, float)) else ""
    return (f"this plan may run out of memory: stage {stage + 1} needs up to {needed}{capacity_text} per device.",)
