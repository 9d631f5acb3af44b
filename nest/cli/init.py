"""`nest init`: a commented problem to begin with."""

import sys
from collections.abc import Callable
from pathlib import Path

import typer

from nest.cli.asked import BATCH, CLUSTER, DEVICE, GPUS_PER_NODE, MODEL, NETWORK, NODES, SEQUENCE, Asked, ProblemCommand
from nest.errors import InputError

ASKED = {
    "model": "Model: a config.json, or a name that `nest models` lists",
    "cluster": "Cluster: a name that `nest clusters` lists (NAME-N: with N devices), a file, or a device such as h100",
    "device": "Device: a name that `nest devices` lists",
    "nodes": "Number of nodes",
    "batch": "Samples per optimizer step (global batch)",
    "sequence": "Tokens per sample (sequence length)",
}
"""Questions on a terminal, by option."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init", cls=ProblemCommand)(init)


def init(
    model: str | None = MODEL,
    cluster: str | None = CLUSTER,
    nodes: str | None = NODES,
    gpus_per_node: str | None = GPUS_PER_NODE,
    device: str | None = DEVICE,
    network: str | None = NETWORK,
    batch: str | None = BATCH,
    sequence: str | None = SEQUENCE,
    tokens: str | None = typer.Option(None, "--tokens", metavar="N", help="Tokens of the whole training, such as 15T."),
    output: Path = typer.Option(Path("problem.yaml"), "--output", "-o", help="Write the problem to this file."),
    force: bool = typer.Option(False, "--force", help="Replace an existing file."),
) -> None:
    """Write a commented problem file for a model and a cluster.

    Prompts for anything you leave out. Exit code 0: done; 2: bad input.
    """
    from nest.cli.problem_text import problem_text
    from nest.io import check_writable, there_is, write_text

    asked = Asked(model, cluster, nodes, gpus_per_node, device, network, batch, sequence, tokens)
    check_writable(output, *asked.files)
    if there_is(output) and not force:
        raise InputError(f"{output} exists; replace it with --force, or name another file with --output.")
    text = problem_text(asked, output, "init", _ask if sys.stdin.isatty() else None)
    _prove(text, output)
    write_text(output, text)
    typer.echo(f"Wrote {output}. Next: `nest solve {output}`.")


def _ask(name: str, check: Callable[[str], str], usual: str | None) -> str:
    """Ask a question until `check` accepts the answer."""

    def proper(text: str) -> str:
        try:
            return check(text)
        except InputError as error:
            raise typer.BadParameter(str(error)) from None

    return str(typer.prompt(ASKED[name], default=usual, value_proc=proper, err=True))


def _prove(text: str, output: Path) -> None:
    """Read the text as `nest solve` will, so that no refused problem is written."""
    from nest.formulate.problem import self_contained
    from nest.io import read_text
    from nest.spec import Problem

    self_contained(read_text(text, Problem, str(output)), output.parent).refuse_missing_units()
