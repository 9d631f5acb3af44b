"""`nest init`: a commented problem to begin with."""

import os
import sys
from pathlib import Path

import typer

from nest.cli.options import complete_clusters, complete_devices, complete_models, count
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.units import Count, Positions

TEXT = """\
# A problem: `nest solve {file}` finds its fastest plan. Keys that are commented out may be left out.
nest: 1

# What is trained: a name that `nest models` lists, or a config.json as Hugging Face has it.
model: {model}

training:
  global_batch: {global_batch}  # samples per optimizer step
{lengths}  # micro_batch: [{micro_batch}]  # samples per micro-batch, of which the search picks; left out, these
  # precision: {precision}  # of matrix products; left out, this
  # optimizer: {optimizer}  # left out, this
  # memory_risk: 0.5  # share of launches that may run out of memory; left out, this
  # stack: megatron-core  # what the framework does by itself, `nest stacks` lists them; left out, the device's usual

# Where: a name that `nest clusters` lists, its levels, or a file that `nest topology` reads.
{cluster}

# strategies: {{tp: [1, 2, 4, 8]}}  # degrees to try; left out, all that the model and the cluster allow
# search: {{target: megatron}}  # the framework that must run the plan, `none`: any may; left out, that of the stack
# constraints: [tp <= 8, dp % 4 == 0]  # what every plan must satisfy; left out, nothing
# fixed: {{tp: 8, pp: 4}}  # decisions taken already; left out, all are open
"""

OF_TOKENS = """\
  sequence_length: {sequence_length}  # tokens per sample
  {tokens}  # of the whole training
"""
"""Left out where samples have no tokens."""

OF_CLUSTER = (
    "  # reserve: 4 GiB  # kept free on every device; left out, nothing",
    "  # price: 2.5  # of one device for an hour, in any currency; with training.tokens plans tell the cost",
)

ASKED = {
    "model": "Model: a config.json, or a name that `nest models` lists",
    "cluster": "Cluster: a name that `nest clusters` lists (NAME-N: with N devices), or a file",
    "device": "Device, which the file does not say: a name that `nest devices` lists",
    "global_batch": "Samples per optimizer step (global batch)",
    "sequence_length": "Tokens per sample (sequence length)",
}
"""What is asked on a terminal, by the option that says it."""


def init(
    model: str | None = typer.Option(
        None,
        "--model",
        metavar="NAME|FILE",
        autocompletion=complete_models,
        help="A config.json, or a name that `nest models` lists.",
    ),
    cluster: str | None = typer.Option(
        None,
        "--cluster",
        metavar="NAME|FILE",
        autocompletion=complete_clusters,
        help="A cluster that `nest clusters` lists, NAME-N for N devices of it, or a file of one.",
    ),
    device: str | None = typer.Option(
        None,
        "--device",
        metavar="NAME",
        autocompletion=complete_devices,
        help="The device, where the file of the cluster does not say it.",
    ),
    global_batch: str | None = typer.Option(None, "--global-batch", metavar="N", help="Samples per optimizer step."),
    sequence_length: str | None = typer.Option(
        None, "--sequence-length", metavar="N", help="Tokens per sample, as in 8k."
    ),
    tokens: str | None = typer.Option(None, "--tokens", metavar="N", help="Tokens of the whole training, as in 15T."),
    output: Path = typer.Option(Path("problem.yaml"), "--output", "-o", help="Write the problem to this file."),
    force: bool = typer.Option(False, "--force", help="Replace the file where there is one."),
) -> None:
    """Write a commented problem for a model and a cluster, to be solved as it is or changed.

    What no option says is asked on a terminal. Exit code 0: done; 2: bad input.
    """
    from nest.io import check_writable, there_is, write_text

    check_writable(output, *(each for each in (model, cluster) if each))
    if there_is(output) and not force:
        raise InputError(f"{output}: there is such a file; --force replaces it, --output names another.")
    length = None if model is None else _usual_length(model)
    given = {"model": model, "cluster": cluster, "global_batch": global_batch}
    if model is None or length is not None:
        given["sequence_length"] = sequence_length
    _refuse_missing([name for name, value in given.items() if not value])
    if model is None:
        model = _ask("model")
        length = _usual_length(model)
    if length is None and (sequence_length or tokens):
        raise InputError(f"--model {model}: its samples have no tokens; leave --sequence-length and --tokens out.")
    cluster = cluster or _ask("cluster")
    section = _cluster(cluster, device, output.parent)
    text = TEXT.format(
        file=output.name,
        model=_quoted(_seen_from(model, output.parent)),
        global_batch=_number(global_batch, Count, "--global-batch")
        if global_batch
        else _ask("global_batch", kind=Count),
        lengths="" if length is None else _lengths(sequence_length, tokens, length),
        cluster=section,
        **_defaults(),
    )
    _prove(text, output)
    write_text(output, text)
    typer.echo(f"{output} is written; `nest solve {output}` finds the fastest plan.")


def _refuse_missing(missing: list[str]) -> None:
    """Tell what options are missing where nobody can be asked."""
    if missing and not sys.stdin.isatty():
        options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise InputError(f"nest init needs {options}: standard input is no terminal on which it could ask.")


def _ask(name: str, default: str | None = None, kind: object = None) -> str:
    """The answer to a question; that for a number of some kind is asked again until it is one."""
    proper = None if kind is None else lambda text: _number(text, kind)
    return str(typer.prompt(ASKED[name], default=default, value_proc=proper, err=True))


def _lengths(sequence_length: str | None, tokens: str | None, usual: int) -> str:
    """What is said of tokens: as options say it, else what is answered, a number such as `usual`."""
    length = (
        _number(sequence_length, Positions, "--sequence-length")
        if sequence_length
        else _ask("sequence_length", str(usual), kind=Positions)
    )
    whole = "# tokens: 1T" if tokens is None else f"tokens: {_number(tokens, Count, '--tokens')}"
    return OF_TOKENS.format(sequence_length=length, tokens=whole)


def _usual_length(model: str) -> int | None:
    """Tokens per sample that a model is mostly described with, None where samples have none; it is read for that.

    Mistakes in it are so told first.
    """
    from nest.formulate.model import default_sequence_length, resolve_model

    try:
        return default_sequence_length(resolve_model(model, None), registry())
    except InputError as error:
        raise InputError(f"--model: {error}") from None


def _cluster(cluster: str, device: str | None, folder: Path) -> str:
    """The `cluster` section; asks for the device where nothing says it."""
    from nest.formulate.cluster import build_cluster
    from nest.io import structure, there_is
    from nest.spec import ClusterSpec

    if there_is(Path(cluster)) == "file" and _is_section(Path(cluster)):
        return f"cluster: {_quoted(_seen_from(cluster, folder))}"
    is_file = bool(there_is(Path(cluster)))
    key = "topology" if is_file else "name"
    mapping = {key: cluster} if device is None else {key: cluster, "device": device}
    try:
        known = build_cluster(structure(mapping, ClusterSpec), registry())[1]
    except InputError as error:
        if device is not None or not is_file or not sys.stdin.isatty():
            raise InputError(f"--cluster, --device: {error}") from None
        known = None
    if known is None:
        _refuse_missing(["device"])
        mapping["device"] = _ask("device")
    mapping[key] = _seen_from(cluster, folder) if is_file else cluster
    lines = [f"  {name}: {_quoted(value)}" for name, value in mapping.items()]
    return "\n".join(["cluster:", *lines, *OF_CLUSTER])


def _is_section(path: Path) -> bool:
    """Whether a file holds a whole `cluster` section."""
    from nest.io import read_mapping

    try:
        return "cluster" in read_mapping(path).mapping
    except InputError:
        return False


def _seen_from(source: str, folder: Path) -> str:
    """A file as a problem in `folder` names it; a name of the catalogue as it is."""
    from nest.catalogue import library_models
    from nest.io import there_is

    if source in library_models() or Path(source).is_absolute() or not there_is(Path(source)):
        return source
    return os.path.relpath(source, folder)


def _defaults() -> dict[str, str]:
    from nest.formulate.shard import USUAL_MICRO_BATCHES
    from nest.spec import Training

    usual = Training(1)
    return {
        "micro_batch": ", ".join(map(str, USUAL_MICRO_BATCHES)),
        "precision": usual.precision,
        "optimizer": usual.optimizer,
    }


def _number(text: str, kind: object, option: str | None = None) -> str:
    """A number as it is written in a problem, where it may have a suffix, too."""
    count(text, kind, option)
    return text.strip()


def _quoted(value: str) -> str:
    """`value` as YAML."""
    from nest.io import yaml_text

    return yaml_text({"key": value}).removeprefix("key: ").rstrip("\n")


def _prove(text: str, output: Path) -> None:
    """Read the text as `nest solve` will, so that nothing is written which that refuses."""
    from nest.formulate.problem import self_contained
    from nest.io import read_text
    from nest.spec import Problem

    self_contained(read_text(text, Problem, str(output)), output.parent)
