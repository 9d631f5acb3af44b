"""`nest plugins doctor` and `nest plugins new`: conformance of objects, and a new plug-in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nest.public.commands import DONE, JSON, NO_PLAN, screen, show_paragraph, to_json, warn_of_plugins
from nest.public.layout import Tone, opening

if TYPE_CHECKING:
    from nest.hooks.registry import Registry
    from nest.public.checks import PluginState
    from nest_testing.finding import Finding

PATIENCE = 120.0  # Seconds after which the checks of one object are given up: a hundred times those of a built-in.
FAILED = "  FAILED"  # Begin of the line of a failed check.
FURTHER = 8  # Further indent of continuation lines of a check.

Row = tuple[str, str, str, str, "tuple[Finding, ...]"]
"""Distribution, version, kind and name of an object, and its findings."""


def doctor(
    distributions: list[str] = typer.Argument(
        None, metavar="[NAME]...", help="Distributions to check; default: all with plug-ins."
    ),
    built_ins: bool = typer.Option(False, "--built-ins", help="Also check the bundled distributions."),
    as_json: bool = JSON,
) -> None:
    """Test every plug-in object on small models and clusters.

    Exit code 0: all pass; 1: one fails or is disabled; 2: no such distribution.
    """
    from nest.hooks.registry import registry
    from nest.public.checks import DISTRIBUTION

    known = registry()
    states = {state.distribution: state for state in known.states()}
    chosen = _chosen(distributions or [], list(states))
    if built_ins and DISTRIBUTION not in chosen:
        chosen.insert(0, DISTRIBUTION)
    rows = _examined(known, chosen)
    troubles = {name: list(states[name].faults) for name in chosen if states[name].faults}
    healthy = not troubles and all(finding.passed for row in rows for finding in row[-1])
    warn_of_plugins()
    if as_json:
        typer.echo(to_json(_document(rows, troubles, healthy)))
    else:
        for line in _findings(rows, [states[name] for name in chosen]):
            _show_finding(line)
    raise typer.Exit(DONE if healthy else NO_PLAN)


def _show_finding(line: str) -> None:
    if line.startswith(FAILED):
        typer.echo(opening(FAILED, Tone.BAD, line.removeprefix(FAILED), screen(), FURTHER))
    else:
        show_paragraph(line, FURTHER if line.startswith("  ") else 2)


def _chosen(named: list[str], installed: list[str]) -> list[str]:
    """Return the distributions to check: those named, or all outside nest.

    Raises:
        InputError: one is not installed, or brings no plug-in.
    """
    from nest.catalogue import unknown_name
    from nest.public.checks import DISTRIBUTION, normal_name

    if not named:
        return [name for name in installed if name != DISTRIBUTION]
    by_name = {normal_name(name): name for name in installed}
    for name in named:
        if normal_name(name) not in by_name:
            raise unknown_name("nest plugins doctor", "distribution with plug-ins", name, installed)
    return list(dict.fromkeys(by_name[normal_name(name)] for name in named))


def _examined(known: Registry, distributions: list[str]) -> list[Row]:
    """Check every object of the distributions."""
    from nest.public.checks import KINDS
    from nest_testing.conformance import check_within

    rows: list[Row] = []
    for kind in KINDS:
        for name in getattr(known, kind)():
            distribution, version = known.origin(kind, name)
            if distribution in distributions:
                findings = check_within(PATIENCE, known.unguarded(kind, name), kind)
                rows.append((distribution, version, kind, name, findings))
    return sorted(rows, key=lambda row: distributions.index(row[0]))


def _document(rows: list[Row], troubles: dict[str, list[str]], healthy: bool) -> dict[str, object]:
    objects = [
        {
            "distribution": distribution,
            "version": version,
            "kind": kind,
            "name": name,
            "findings": [{"check": f.check, "passed": f.passed, "told": f.told} for f in findings],
        }
        for distribution, version, kind, name, findings in rows
    ]
    return {"healthy": healthy, "objects": objects, "set_aside": troubles}


def _findings(rows: list[Row], states: list[PluginState]) -> list[str]:
    """Describe the findings: passed ones in short, failed ones with the reason."""
    from nest.public.checks import KINDS

    lines = []
    for distribution, version, kind, name, findings in rows:
        passed = sum(finding.passed for finding in findings)
        verdict = f"{passed} of {len(findings)} checks passed"
        lines.append(f"{f'{distribution} {version}'.rstrip()}, {KINDS[kind].word} {name}: {verdict}")
        for finding in findings:
            if finding.passed:
                lines.append(f"  passed  {finding.check} ({finding.told})")
            else:
                lines += [f"{FAILED}  {finding.check}", f"          {finding.told}"]
    registered = {row[0] for row in rows}
    for state in states:
        if state.faults or state.distribution not in registered:
            lines.append(f"{f'{state.distribution} {state.version}'.rstrip()}: {state.state}")
    if not states:
        lines.append("no other plug-ins are installed; `nest plugins new` creates one")
    return lines


def new(
    name: str = typer.Argument(..., metavar="NAME", help="Name of the distribution and its folder."),
    kind: str = typer.Option(
        ...,
        "--kind",
        "-k",
        metavar="KIND",
        help="Kind: strategy, collective-model, cost-model, layer-times, schedule, model-importer, "
        "topology-importer, planner, exporter, plan-reader, stack or engine.",
    ),
    output: Path = typer.Option(Path(), "--output", "-o", metavar="DIR", help="Parent folder."),
) -> None:
    """Write a working plug-in with passing tests.

    Exit code 0: done; 2: the name is unusable or taken, or the folder exists.
    """
    from nest.io import write_folder
    from nest_testing.skeleton import skeleton

    texts = skeleton(name, kind)
    folder = output / name
    write_folder(folder, texts)
    for path in texts:
        typer.echo(str(folder / path))
