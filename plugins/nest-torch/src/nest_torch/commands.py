"""`nest profile`, `nest capture` and `nest torch`: what each does is in modules of their own, which load PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nest.spec.measurements import Measurement, OperatorMeasurement
    from nest_torch.experiments import Experiment
    from nest_torch.machine import Machine
    from nest_torch.profiling import Effort

PRECISIONS = ("fp32", "fp16", "bf16", "fp8")
"""Precisions of nest that PyTorch can measure."""

UNSTEADY = 0.2
"""Distance between quartiles, over the median, above which the median of 20 repeats is off by some 4 %."""

LOSSES = ("unfused", "fused", "none")
"""Cross-entropies added to a captured program that ends with logits."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("profile")(profile)
    app.command("capture")(capture)
    group = typer.Typer(no_args_is_help=True, help="Export, profile and run PyTorch modules.")
    group.command("check")(check)
    app.add_typer(group, name="torch")


def profile(
    device: str = typer.Option("", help="cpu, cuda or cuda:N; default: a GPU if present."),
    precision: str = typer.Option("bf16", help="fp32, fp16, bf16, fp8; separate several by commas."),
    kind: list[str] = typer.Option([], help="Kind of operator; repeatable; default: all."),
    shapes: Path | None = typer.Option(None, metavar="FILE", help="Measure the operators listed in this file."),
    model: Path | None = typer.Option(None, metavar="PROBLEM", help="Measure the operators of this problem's plans."),
    seconds: float = typer.Option(120.0, min=0.1, help="Time limit; the last operators are dropped."),
    repeats: int = typer.Option(20, min=3, help="Timings per operator; the median counts."),
    cold: bool = typer.Option(False, "--cold", help="Empty the caches before each run."),
    processes: int = typer.Option(
        1, min=1, help="Above 1: collectives between processes, or the chosen operators on all at once."
    ),
    link: str = typer.Option("", help="Link between the processes, such as nvlink4."),
    placed: int = typer.Option(0, min=0, help="Collectives of DTensor for this degree of tensor parallelism."),
    output: Path | None = typer.Option(None, "--output", "-o", metavar="FILE", help="Write JSON lines to this file."),
    resume: bool = typer.Option(False, "--resume", help="Measure only what FILE lacks."),
) -> None:
    """Measure operators or collectives with PyTorch on this machine.

    Ctrl-C keeps the measurements so far. Exit code 0: done; 2: bad input; 130: interrupted.
    """
    from nest.catalogue import link as known_link
    from nest.errors import InputError
    from nest.io import check_writable

    precisions = _precisions(precision)
    if shapes is not None and model is not None:
        raise InputError("--shapes and --model both say what to measure; give one of them.")
    if link:
        known_link(link, "--link")
    if resume and output is None:
        raise InputError("--resume goes on with a file; name it with --output.")
    if output is not None:
        check_writable(output)
    _need_torch()
    from nest_torch.collectives import launched
    from nest_torch.profiling import Effort

    started = launched()
    ranks = processes if started is None else started[1]
    collectives = (processes > 1 or started is not None) and shapes is None and model is None and not kind
    if placed and not collectives:
        raise InputError("--placed is about collectives; name their --processes, and leave operators out.")
    if placed == 1 or (placed and ranks % placed):
        raise InputError(f"--placed {placed}: give a degree above 1 that divides the {ranks} processes.")
    if started is not None and not collectives:
        raise InputError("Operators are measured without a launcher; leave torchrun out, and give --processes.")
    if started is not None and placed and (local := started[1] // started[2]) % placed and placed % local:
        raise InputError(f"--placed {placed}: give a divisor of the {local} processes per machine, or whole machines.")
    interrupted = False
    found: list[Measurement] | None
    if processes > 1 and not collectives:
        if resume:
            raise InputError("--resume goes on with one process; leave --processes out.")
        found, skipped = _together(device, precisions, shapes, model, kind, processes, Effort(repeats, seconds, cold))
    elif collectives:
        if resume:
            raise InputError("--resume goes on with operators; collectives are measured anew.")
        found, skipped = _collectives(device, precisions[0], processes, link, repeats, seconds, placed)
    else:
        from nest_torch.machine import machine

        here = machine(device)
        known = _measured_before(output, here) if resume and output is not None else []
        chosen = _chosen(here, precisions, shapes, model, kind)
        found, skipped, interrupted = _operators(here, chosen, precisions, repeats, seconds, cold, known)
        found = [*known, *found]
    if found is None:
        return
    for each in skipped:
        typer.echo(f"nest: not measured: {each}.", err=True)
    for text in _unsteady(found):
        typer.echo(f"nest: {text}", err=True)
    if not found:
        raise InputError("nothing could be measured; the lines above say why.")
    _write(output, found)
    if interrupted:
        typer.echo("nest: interrupted; --resume measures the rest.", err=True)
        raise typer.Exit(130)


def check(
    plan: Path = typer.Argument(..., metavar="PLAN", help="Plan file from `nest solve --output`."),
    factory: str = typer.Argument(..., metavar="MODULE:FACTORY", help="Function or class that builds the module."),
    given: list[str] = typer.Option(
        [], "--input", "-i", metavar="[NAME=]TYPE[AXES]", help="Input; default: token ids of the plan's length."
    ),
    steps: int = typer.Option(5, min=1, help="Steps of training."),
    ranks: int = typer.Option(16, min=1, help="Maximum number of processes."),
    seconds: float = typer.Option(600.0, min=1, help="Time limit."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Train a module by a plan in local processes, and compare with one process.

    Exit code 0: losses and gradients agree; 1: they differ (nest prints where); 2: bad input.
    """
    import json

    from nest.errors import InputError

    _need_torch()
    from nest_torch.inputs import inputs
    from nest_torch.loading import Place
    from nest_torch.parallel.checking import check as checked

    read = inputs(given, "fp32") if given else None
    if read is not None and read.positional and read.keywords:
        raise InputError("--input: give the inputs in order, or all of them by keyword.")
    example = None if read is None else read.keywords or read.positional
    found = checked(Place(factory), plan, example, steps=steps, most_ranks=ranks, seconds=seconds)
    if as_json:
        rows = {"ok": found.ok, "ranks": found.ranks, "largest_difference": found.largest}
        more = {name: list(getattr(found, name)) for name in ("losses", "expected_losses", "norms", "expected_norms")}
        typer.echo(json.dumps({**rows, **more, "differences": [str(each) for each in found.differences]}))
    else:
        for each in found.differences:
            typer.echo(f"{each}.")
        verdict = "trains as one process does" if found.ok else "does not train as one process does"
        scale = "" if found.ranks == _ranks(plan) else ", a plan of the same shape on fewer ranks,"
        typer.echo(
            f"{plan}{scale} {verdict}: {steps} steps on {found.ranks} ranks, losses and gradient norms within "
            f"{found.largest:.1e}."
        )
    if not found.ok:
        raise typer.Exit(1)


def _ranks(plan: Path) -> int:
    from nest_torch.parallel.layout import deployment_of, plan_document

    return deployment_of(plan_document(plan)).world_size


def _precisions(text: str) -> tuple[str, ...]:
    from nest.errors import InputError

    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    strange = next((word for word in words if word not in PRECISIONS), None)
    if strange is not None or not words:
        raise InputError(f"--precision takes {', '.join(PRECISIONS)}, with commas between several; got {text!r:.40}.")
    return words


def _need_torch() -> None:
    """Say plainly that PyTorch is missing, where it is."""
    from importlib.util import find_spec

    from nest.errors import InputError

    if find_spec("torch") is None:
        raise InputError("PyTorch is not installed here; `pip install torch` brings it.")


def _chosen(
    here: Machine, precisions: Sequence[str], shapes: Path | None, model: Path | None, kinds: Sequence[str]
) -> tuple[Experiment, ...]:
    """The experiments of a file, of a problem, or of the default grid; of some kinds only."""
    from nest.errors import InputError
    from nest.spec.measurements import OPERATORS
    from nest_torch.experiments import read_experiments
    from nest_torch.grid import default_grid
    from nest_torch.problem_shapes import problem_experiments

    strange = next((kind for kind in kinds if kind not in OPERATORS), None)
    if strange is not None:
        raise InputError(f"--kind {strange}: the kinds of operator are {', '.join(OPERATORS)}.")
    if shapes is not None:
        found = read_experiments(shapes)
    elif model is not None:
        found = problem_experiments(model)
    else:
        widest = max({"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}[precision] for precision in precisions)
        found = default_grid(here.most_flops, here.most_bytes, widest)
    kept = tuple(each for each in found if not kinds or each.kind in kinds)
    if not kept:
        raise InputError(f"--kind {', '.join(kinds)}: there is nothing of this kind to measure.")
    return kept


def _operators(
    here: Machine,
    experiments: Sequence[Experiment],
    precisions: Sequence[str],
    repeats: int,
    seconds: float,
    cold: bool,
    known: Sequence[OperatorMeasurement],
) -> tuple[list[Measurement], list[str], bool]:
    """Measurements beside those `known`, what was skipped and why, and whether Ctrl-C came in between."""
    from nest_torch.profiling import Effort, Skipped, lacking, plan, profile
    from nest_torch.progress import Progress

    rows = lacking(plan(experiments, precisions), known, cold)
    found: list[Measurement] = []
    skipped: list[str] = []
    try:
        with Progress(len(rows)) as progress:
            for each in profile(rows, here, Effort(repeats, seconds, cold), progress):
                if isinstance(each, Skipped):
                    skipped.append(f"{each.told}: {each.reason.rstrip('.')}")
                else:
                    found.append(each)
    except KeyboardInterrupt:
        return found, skipped, True
    return found, skipped, False


def _together(
    device: str,
    precisions: Sequence[str],
    shapes: Path | None,
    model: Path | None,
    kinds: Sequence[str],
    processes: int,
    effort: Effort,
) -> tuple[list[Measurement], list[str]]:
    """Measurements of processes that share the cores of this machine, and what was skipped and why."""
    from nest.errors import InputError
    from nest_torch.machine import device_type, machine
    from nest_torch.profiling import Skipped, plan
    from nest_torch.together import profile_together

    if device_type(device) != "cpu":
        raise InputError("--processes: GPUs do not share cores; measure operators on one, or give --device cpu.")
    rows = plan(_chosen(machine("cpu"), precisions, shapes, model, kinds), precisions)
    found = profile_together(rows, processes, effort)
    skipped = [f"{each.told}: {each.reason.rstrip('.')}" for each in found if isinstance(each, Skipped)]
    return [each for each in found if not isinstance(each, Skipped)], skipped


def _unsteady(found: Sequence[Measurement]) -> list[str]:
    """A sentence if repeats of some measurements differ a lot; none otherwise."""
    from nest.units import percent

    rows = [(getattr(each, "spread", None) or 0.0, getattr(each, "kind", "")) for each in found]
    wide = [spread for spread, _ in rows if spread > UNSTEADY]
    if not wide:
        return []
    spread, kind = max(rows)
    return [
        f"{len(wide)} of {len(found)} measurements spread by more than {percent(UNSTEADY, 0)} of their median, "
        f"{kind} by {percent(spread, 0)}. Is the machine busy? Measure again."
    ]


def _measured_before(output: Path, here: Machine) -> list[OperatorMeasurement]:
    """The measurements in a file that is gone on with; none where there is no file."""
    from nest.errors import InputError
    from nest.spec.measurements import OperatorMeasurement, read_measurements

    if not output.exists() or not output.stat().st_size:
        return []
    read = read_measurements(output)
    found = [each for each in read if isinstance(each, OperatorMeasurement) and each.device == here.name]
    if len(found) < len(read):
        raise InputError(f"--resume: {output} has measurements of something else than operators on {here.name}.")
    return found


def _collectives(
    device: str, precision: str, processes: int, link: str, repeats: int, seconds: float, placed: int
) -> tuple[list[Measurement] | None, list[str]]:
    """The measurements; None in every process but the first of those that a launcher started."""
    from nest.errors import InputError
    from nest_torch.collectives import Group, among_own_processes, launched, measured
    from nest_torch.machine import device_type

    if precision == "fp8":
        raise InputError("--precision fp8: collectives are measured in fp32, fp16 or bf16.")
    asked = device_type(device)
    started = launched()
    if started is None:
        own, skipped = among_own_processes(Group(processes, asked, precision, link, repeats, seconds, 1, placed))
        return [*own], skipped
    rank, count, nodes = started
    if count < 2:
        raise InputError("the launcher started one process; collectives are measured between two or more.")
    found, skipped = measured(rank, Group(count, asked, precision, link, repeats, seconds, nodes, placed), "env://")
    return ([*found], skipped) if rank == 0 else (None, [])


def _write(output: Path | None, found: Sequence[Measurement]) -> None:
    import json

    from nest.io import unstructure, write_text

    text = "".join(json.dumps(unstructure(each), allow_nan=False) + "\n" for each in found)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_text(output, text)
        typer.echo(f"{output}: {len(found)} measurements.")


def capture(
    factory: str = typer.Argument(
        ..., metavar="MODULE", help="module:factory, file.py:factory, or a config.json of Hugging Face transformers."
    ),
    given: list[str] = typer.Option(
        [], "--input", "-i", metavar="[NAME=]TYPE[AXES]", help="Input, such as 'int64[batch,sequence=2048]'."
    ),
    sequence_length: int | None = typer.Option(
        None,
        min=1,
        help="Tokens per sample of a config.json without --input; default: 2048, or its positions if fewer.",
    ),
    precision: str = typer.Option("bf16", help="fp32, fp16 or bf16."),
    as_traced: bool = typer.Option(False, "--as-traced", help="Keep every call; default: fuse norms, attention, ...."),
    loss: str = typer.Option("unfused", help="Cross-entropy: unfused, fused or none."),
    output: Path = typer.Option(..., "--output", "-o", metavar="FILE", help="Operator graph to write (.json)."),
) -> None:
    """Write the operator graph of a PyTorch module, without allocating its weights.

    Exit code 0: done; 2: bad input.
    """
    import json

    from nest.errors import InputError
    from nest.io import check_writable, unstructure, write_text

    check_writable(output)
    if output.suffix.lower() != ".json":
        raise InputError(f"--output {output}: the name must end in .json.")
    if loss not in LOSSES:
        raise InputError(f"--loss takes {', '.join(LOSSES)}; got {loss!r:.40}.")
    _need_torch()
    from nest_torch.capturing import capture as captured
    from nest_torch.configurations import load_configuration, usual_inputs
    from nest_torch.inputs import inputs
    from nest_torch.loading import load

    if Path(factory).suffix == ".json":
        module = load_configuration(Path(factory), precision)
        given = given or usual_inputs(module, sequence_length)
    elif not given:
        raise InputError("--input is missing; give the type and axes, as in 'int64[batch,sequence=2048]'.")
    example = inputs(given, precision)
    module = module if Path(factory).suffix == ".json" else load(factory, precision)
    graph = captured(
        module, example.positional, keywords=example.keywords, axes=example.axes, fused=not as_traced, loss=loss
    )
    write_text(output, json.dumps(unstructure(graph), allow_nan=False) + "\n")
    told = f"{graph.parameter_count} parameters, {graph.model_flops:.6g} FLOP for one sample"
    typer.echo(f"{output}: {len(graph.operators)} operators in {len(graph.layers)} layers, {told}.")
    unused = sum(each.numel() for each in module.parameters()) - graph.parameter_count
    if unused:
        typer.echo(f"nest: {unused} parameters take no part in the result and are left out.", err=True)
