"""`nest measured`: imports of what other tools measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from nest_measured.galvatron_files import Profiles

OUTPUT = typer.Option(..., "--output", "-o", metavar="FILE", help="File to write.")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command("galvatron")(galvatron)
    group.command("kineto")(kineto)
    group.command("profile")(profile)
    app.add_typer(group, name="measured", help="Import measurements of other tools.")


def galvatron(
    files: list[Path] = typer.Argument(
        ..., metavar="FILES...", help="Galvatron's measurements of compute, memory and links."
    ),
    layers: int = typer.Option(..., min=1, help="Transformer layers of the model."),
    hidden: int = typer.Option(..., min=1, help="Width of the model."),
    output: Path = OUTPUT,
    precision: str = typer.Option("", help="bf16, fp16 or fp32; default: from the file names."),
    sequence: int = typer.Option(0, min=0, help="Tokens per sample; default: as measured."),
    micro_batch: list[int] = typer.Option([], help="Micro-batch to import; repeatable; default: all."),
) -> None:
    """Convert Galvatron's profiles to a `profile:` of a problem.

    Exit code 0: done; 2: bad input.
    """
    from nest.io import check_writable, unstructure
    from nest_measured.galvatron import Asked, profile_of
    from nest_measured.galvatron_files import read_profiles

    check_writable(output)
    profiles = read_profiles(files)
    for path in profiles.unused:
        typer.echo(f"nest: {path}: not used; it has neither times, memory nor all-reduces of a profile.", err=True)
    mixed = _precision(precision, files) != "fp32"
    asked = Asked(layers, hidden, mixed, sequence or _sequence(profiles), tuple(micro_batch) or None)
    profile = profile_of(profiles, asked)
    _write(output, unstructure(profile))
    typer.echo(f"{output}: {len(profile.candidates)} candidates of {len(profile.layers)} layers.")


def kineto(
    trace: Path = typer.Argument(..., metavar="TRACE", help="Trace of torch.profiler, .json or .json.gz."),
    output: Path = OUTPUT,
    device: str = typer.Option("", help="Device of the recording."),
) -> None:
    """Convert a Kineto trace to a table for `costs: measured`.

    Exit code 0: done; 2: bad input.
    """
    from nest.errors import InputError
    from nest.io import check_writable, unstructure
    from nest_measured.kineto import read_trace, table_of

    check_writable(output)
    content = read_trace(trace)
    try:
        table = table_of(content, device or None)
    except InputError as error:
        raise InputError(f"{trace}: {error}") from None
    _write(output, unstructure(table))
    calls = sum(row.samples for row in table.operators)
    kinds = ", ".join(sorted({row.kind for row in table.operators}))
    typer.echo(f"{output}: {len(table.operators)} sizes of {kinds}, from {calls} calls.")


def profile(
    measurements: Path = typer.Argument(..., metavar="FILE", help="Output of `nest profile` (JSON lines)."),
    output: Path = OUTPUT,
    device: str = typer.Option(..., help="Name of the device (`nest devices`)."),
) -> None:
    """Convert output of `nest profile` to a table for `costs: measured`.

    Exit code 0: done; 2: bad input.
    """
    from nest.errors import InputError
    from nest.hooks.registry import registry
    from nest.io import check_writable, unstructure
    from nest_calibrate.operator_times import checked_operators
    from nest_measured.profiled import table_of

    check_writable(output)
    built_in = next(iter(registry().cost_models().values()))
    measured = checked_operators(measurements, device, built_in, _warn)
    try:
        table = table_of(measured, device)
    except InputError as error:
        raise InputError(f"{measurements}: {error}") from None
    _write(output, unstructure(table))
    kinds = ", ".join(sorted({row.kind for row in table.operators}))
    typer.echo(f"{output}: {len(table.operators)} sizes of {kinds}.")


def _warn(sentence: str) -> None:
    typer.echo(f"nest: warning: {sentence}", err=True)


def _write(output: Path, document: object) -> None:
    """As JSON, which is YAML too and many times as fast to read."""
    import json

    from nest.errors import InputError
    from nest.io import write_text

    if output.suffix.lower() not in (".json", ".yaml", ".yml"):
        raise InputError(f"--output {output}: the name must end in .json or .yaml.")
    write_text(output, json.dumps(document, indent=1, allow_nan=False) + "\n")


def _precision(given: str, files: list[Path]) -> str:
    """The precision as given, or as all names of files say that say one."""
    from nest.errors import InputError

    known = ("bf16", "fp16", "fp32")
    told = {word for path in files for word in path.stem.split("_") if word in known}
    if given and given not in known:
        raise InputError(f"--precision must be one of {', '.join(known)}, is {given!r:.40}.")
    if not given and len(told) != 1:
        raise InputError("the names of the files do not tell the precision; give --precision bf16, fp16 or fp32.")
    return given or told.pop()


def _sequence(profiles: Profiles) -> int:
    """The sequence length that was measured, if it is one."""
    from nest.errors import InputError
    from nest_measured.galvatron import sequence_lengths

    lengths = sequence_lengths(profiles)
    if len(lengths) == 1:
        return lengths[0]
    if not lengths:
        raise InputError(
            "the files have no sequence length whose times and memory are both known; name a computation_profiling "
            "and a memory_profiling file, both with `layertype_` keys."
        )
    raise InputError(f"--sequence is missing; measured are {', '.join(map(str, lengths))} tokens.")
