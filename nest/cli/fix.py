"""`nest fix`: changes to a run that does not fit, or could be faster."""

from pathlib import Path

import typer

from nest import api
from nest.cli.evaluate import changes_of_run, started_run
from nest.cli.options import (
    DEVICES_PER_NODE,
    JSON,
    MODEL,
    NODES,
    PART,
    RELEASE,
    STRICT_PLUGINS,
    VOCABULARY,
    ScriptCommand,
    launch_options,
)
from nest.cli.output import NO_PLAN, show, warn_of_plugins
from nest.errors import InputError

READERS = {".toml": "torchtitan"}
"""Plan readers by the ending of files; else `megatron`."""

KNOWN = (".sh", ".sbatch", ".slurm", ".log", ".txt", "", *READERS)
"""Endings of files whose framework is known without a name."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("fix", cls=ScriptCommand)(fix)


def fix(
    context: typer.Context,
    file: Path = typer.Argument(..., metavar="FILE", help="The launch script or configuration; never executed."),
    problem: Path | None = typer.Argument(None, metavar="[PROBLEM]", help="Facts that the file lacks."),
    reader: str | None = typer.Option(None, "--from", "--reader", metavar="NAME", help="Framework, such as deepspeed."),
    cluster: str | None = typer.Option(None, "--cluster", metavar="NAME|FILE", help="Cluster of the run."),
    nodes: int | None = NODES,
    devices_per_node: int | None = DEVICES_PER_NODE,
    part: str | None = PART,
    release: str | None = RELEASE,
    vocabulary: int | None = VOCABULARY,
    model: str | None = MODEL,
    as_json: bool = JSON,
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Change as few flags as possible so that a run fits.

    Prints up to three changes as a diff of flags: fewest flags first, then by step time. A run that fits gets single
    changes that gain more than 1 %. Arguments of the script follow `--`. Exit code 0: done; 1: no change fits; 2: bad
    input.
    """
    from nest.formulate.risk import accepted_risk, admits
    from nest.report.text.changes import changes_text
    from nest.report.text.first_screen import first_screen

    framework = reader or READERS.get(file.suffix, "megatron")
    options = launch_options(context, nodes, devices_per_node, part, release)
    if reader is None and file.suffix not in KNOWN:
        raise InputError(f"{file}: of {file.suffix} files nest does not know the framework; give --from NAME.")
    started = started_run(framework, file, [problem] if problem else [], cluster, options, vocabulary, model)
    plan = api.evaluate(started.problem)
    fits = admits(started.problem, plan)
    changes = changes_of_run(started.problem, plan, fits, framework, started.devices, file)
    warn_of_plugins()
    document = {"plan": plan.to_dict(), "fits": fits, "changes": changes}
    risk, now = accepted_risk(started.problem.training, started.problem.model), plan.batch_time or 0.0
    show(as_json, document, lambda on: f"{first_screen(plan, on)}\n\n{changes_text(fits, risk, changes, now, on)}")
    if not fits and not changes:
        raise typer.Exit(NO_PLAN)
