"""The options that make a problem, shared by `nest init` and `nest solve`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer
import typer.core

from nest.cli.options import complete_clusters, complete_devices, complete_models
from nest.errors import InputError
from nest.units import displayed

MODEL = typer.Option(
    None,
    "--model",
    metavar="NAME|FILE",
    autocompletion=complete_models,
    help="Name (`nest models` lists them) or config.json.",
)
CLUSTER = typer.Option(
    None,
    "--cluster",
    metavar="NAME|FILE",
    autocompletion=complete_clusters,
    help="Name (`nest clusters`), NAME-N for N devices, or file.",
)
NODES = typer.Option(None, "--nodes", metavar="N", help="Number of nodes, without --cluster; default 1.")
GPUS_PER_NODE = typer.Option(None, "--gpus-per-node", metavar="N", help="GPUs per node; default: usual for the device.")
DEVICE = typer.Option(
    None, "--device", metavar="NAME", autocompletion=complete_devices, help="GPU type, such as h100 or a100-80gb."
)
NETWORK = typer.Option(None, "--network", metavar="BANDWIDTH", help="Between nodes, per GPU, such as '400 Gbit/s'.")
BATCH = typer.Option(None, "--batch", metavar="N", help="Global batch: samples per optimizer step.")
SEQUENCE = typer.Option(None, "--sequence", metavar="N", help="Sequence length in tokens, such as 8k.")

EXAMPLE = (
    'nest solve --model llama-3.1-8b --nodes 2 --gpus-per-node 8 --device h100 --network "400 Gbit/s" --batch 256 '
    "--sequence 8192"
)

OTHER_WORDS = {
    "--global-batch": "--batch",
    "--sequence-length": "--sequence",
    "--devices-per-node": "--gpus-per-node",
}
"""Names of these options in other commands and files, understood, too."""


class ProblemCommand(typer.core.TyperCommand):
    """A command with these options, also by `OTHER_WORDS`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replace other words by the options' own."""
        parts = (arg.partition("=") for arg in args)
        return super().parse_args(ctx, ["".join((OTHER_WORDS.get(name, name), *rest)) for name, *rest in parts])


PLACES = {
    "model": "model",
    "cluster": "cluster",
    "nodes": "cluster.levels",
    "gpus_per_node": "cluster.levels",
    "device": "cluster.device",
    "network": "cluster.levels",
    "batch": "training.global_batch",
    "sequence": "training.sequence_length",
}
"""The key of a problem that each option sets."""


class Asked(NamedTuple):
    """Values of the options as written; None: not given. `tokens` and `target` may also change a file's."""

    model: str | None
    cluster: str | None
    nodes: str | None
    gpus_per_node: str | None
    device: str | None
    network: str | None
    batch: str | None
    sequence: str | None
    tokens: str | None = None
    target: str | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """Return the given options that make a problem."""
        return tuple(name for name in PLACES if getattr(self, name))

    @property
    def files(self) -> tuple[str, ...]:
        """Return values that may name files."""
        return tuple(each for each in (self.model, self.cluster) if each)


def option(name: str) -> str:
    """Return the option of that name, as written."""
    return f"--{name.replace('_', '-')}"


def check_asked(asked: Asked, problems: Sequence[Path], print_it: bool) -> None:
    """Refuse problem options beside problem files, or neither of them.

    Raises:
        InputError: both or neither are given.
    """
    from nest.io import placed, read_mapping

    if not problems and not asked.given:
        raise InputError(
            f"nest solve needs a problem file, `nest solve problem.yaml`, or options, `{EXAMPLE}`; see `nest solve "
            "--help`."
        )
    if problems and print_it:
        raise InputError("--print-problem works only with options; you gave a problem file.")
    if problems and asked.given:
        name, place = option(asked.given[0]), PLACES[asked.given[0]]
        section, _, key = place.rpartition(".")
        written: Any = read_mapping(problems[0]).mapping
        written = written.get(section) if section else written
        said = written.get(key) if isinstance(written, dict) else None
        here = f" is {displayed(said)} here;" if isinstance(said, (str, int)) else ":"
        told = f"{place}{here} {name} cannot be combined with a problem file. Edit the file, or leave {name} out."
        raise placed(problems[0], InputError(told))
