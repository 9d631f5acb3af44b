"""`nest plugins doctor`: the conformance kit, run on what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from nest.cli.output import DONE, NO_PLAN, screen, to_json, warn

if TYPE_CHECKING:
    from nest.hooks.loader import PluginState
    from nest.hooks.registry import Registry
    from nest.report.screen import Screen
    from nest.testing import Finding

PATIENCE = 120.0
"""Seconds after which the checks of one object are given up: a hundred times what those of a built-in take."""

FAILED = "  FAILED"
"""How the line of a check begins that an object does not pass."""

HANGING = 8
"""Columns further right that the line of a check goes on below itself."""

Row = tuple[str, str, str, str, "tuple[Finding, ...]"]
"""Distribution, version, kind and name of an object, and what was found."""


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command("doctor")(doctor)


def doctor(
    distributions: list[str] = typer.Argument(
        None, metavar="[NAME]...", help="Installed distributions; none: all that bring plug-ins."
    ),
    built_ins: bool = typer.Option(False, "--built-ins", help="Check what ships with nest too."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
) -> None:
    """Try every object that plug-ins bring on small models and clusters, and explain what does not conform.

    Exit code 0: all of them conform; 1: one does not, or is disabled; 2: no such distribution.
    """
    from nest.hooks.discovery import DISTRIBUTION
    from nest.hooks.registry import registry

    known = registry()
    states = {state.distribution: state for state in known.states()}
    chosen = _chosen(distributions or [], list(states))
    if built_ins and DISTRIBUTION not in chosen:
        chosen.insert(0, DISTRIBUTION)
    rows = _examined(known, chosen)
    troubles = {name: list(states[name].faults) for name in chosen if states[name].faults}
    healthy = not troubles and all(finding.passed for row in rows for finding in row[-1])
    warn(known.warnings)
    if as_json:
        typer.echo(to_json(_document(rows, troubles, healthy)))
    else:
        told = _lines(rows, [states[name] for name in chosen])
        typer.echo("\n".join(_shown(line, screen()) for line in told))
    raise typer.Exit(DONE if healthy else NO_PLAN)


def _shown(line: str, shown_on: Screen) -> str:
    from nest.report.paragraph import opening, paragraph
    from nest.report.screen import Tone

    if line.startswith(FAILED):
        return opening(FAILED, Tone.BAD, line.removeprefix(FAILED), shown_on, HANGING)
    return paragraph(line, shown_on, HANGING if line.startswith("  ") else 2)


def _chosen(named: list[str], installed: list[str]) -> list[str]:
    """The distributions to look at, as they call themselves; without names all but that of the built-ins.

    Raises:
        InputError: one is not installed, or brings no plug-in.
    """
    from nest.catalogue import unknown_name
    from nest.hooks.discovery import DISTRIBUTION, normal_name

    if not named:
        return [name for name in installed if name != DISTRIBUTION]
    by_name = {normal_name(name): name for name in installed}
    for name in named:
        if normal_name(name) not in by_name:
            raise unknown_name("nest plugins doctor", "distribution with plug-ins", name, installed)
    return list(dict.fromkeys(by_name[normal_name(name)] for name in named))


def _examined(known: Registry, distributions: list[str]) -> list[Row]:
    """Every object of the distributions, checked."""
    from nest.hooks.kinds import KINDS
    from nest.testing.conformance import check_within

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


def _lines(rows: list[Row], states: list[PluginState]) -> list[str]:
    """The findings for people: what passed in short, what failed with its reason."""
    from nest.hooks.kinds import KINDS

    lines = []
    for distribution, version, kind, name, findings in rows:
        failed = [finding for finding in findings if not finding.passed]
        verdict = f"{len(findings) - len(failed)} of {len(findings)} checks passed"
        lines.append(f"{f'{distribution} {version}'.rstrip()}, {KINDS[kind].word} {name}: {verdict}")
        for finding in findings:
            mark = "passed" if finding.passed else "FAILED"
            lines.append(f"  {mark}  {finding.check}" + (f" ({finding.told})" if finding.passed else ""))
            if not finding.passed:
                lines.append(f"          {finding.told}")
    registered = {row[0] for row in rows}
    for state in states:
        if state.faults or state.distribution not in registered:
            lines.append(f"{f'{state.distribution} {state.version}'.rstrip()}: {state.state}")
    if not states:
        lines.append("no plug-ins of other distributions are installed; `nest plugins new` begins one")
    return lines
