"""`nest topology doctor`."""

from pathlib import Path

import typer

from nest.errors import InputError
from nest.hooks.registry import registry
from nest.public.commands import JSON, show, warn_of_plugins
from nest_networks.spooled import spooled


def doctor(
    file: str = typer.Argument(..., metavar="FILE", help="Topology file of another tool, or - for standard input."),
    plan: Path | None = typer.Option(None, "--plan", metavar="PLAN", help="Price each finding for this plan."),
    link_profile: str | None = typer.Option(
        None, "--link-profile", metavar="NAME|FILE", help="Link profile, for what the file lacks."
    ),
    as_json: bool = JSON,
) -> None:
    """Show what is wrong or odd in a cluster: lost links, slow rails, dead hosts.

    Exit code 0: nothing is wrong; 1: something is; 2: bad input.
    """
    # They load NumPy, which `nest --help` does without.
    from nest.public.planning import from_file, read_plan
    from nest.spec import ClusterSpec
    from nest_networks.doctor import WRONG, findings, levels_of, priced, summary, text

    read = None if plan is None else read_plan(plan)
    if read is not None and read.status == "infeasible":
        raise InputError(f"{plan}: this plan is infeasible and has no step time; leave --plan out or give another.")
    with spooled(file) as source:
        spec = ClusterSpec(topology=source, link_profile=link_profile)
        section = registry().run(lambda: from_file(spec, registry(), None))
    warn_of_plugins()
    levels = levels_of(section)
    found = findings(section, levels, read)
    if read is not None:
        found = priced(found, read, levels)
    found.sort(key=lambda each: (each.kind != WRONG, -each.seconds))
    document = {
        "source": file,
        "summary": summary(section, levels),
        "findings": [{"kind": each.kind, "what": each.sentence, "cost": each.cost or None} for each in found],
    }
    show(as_json, document, lambda screen: text(document, screen))
    if any(each.kind == WRONG for each in found):
        raise typer.Exit(1)
