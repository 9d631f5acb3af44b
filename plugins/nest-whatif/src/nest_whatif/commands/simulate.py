"""`nest simulate`: a plan's batch, replayed pass by pass."""

from pathlib import Path

import typer

import nest
from nest.errors import InputError
from nest.public.commands import JSON, NO_PLAN, PLAN, STRICT_PLUGINS, note, share_line, show, warn_of_plugins


def simulate(
    plan: Path = PLAN,
    trace: Path | None = typer.Option(None, "--trace", metavar="FILE", help="Write the timeline for ui.perfetto.dev."),
    jitter: float = typer.Option(0.0, "--jitter", metavar="SIGMA", help="Random task times: sigma of their logarithm."),
    seed: int | None = typer.Option(None, "--seed", metavar="N", help="With --jitter: random seed; default 0."),
    runs: int | None = typer.Option(None, "--runs", metavar="N", help="With --jitter: number of runs; default 100."),
    slow_device: list[str] = typer.Option(
        [], "--slow-device", metavar="STAGE=FACTOR", help="Slow down one device, such as 2=1.3 or 2/0=1.3."
    ),
    as_json: bool = JSON,
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Simulate one step of a plan, pass by pass.

    The plan is checked first. Exit code 0: done; 1: no feasible plan; 2: bad input, or a schedule without an order of
    passes.
    """
    from nest.io import check_writable, write_text
    from nest.public.planning import read_plan
    from nest.public.planning import trace as trace_text
    from nest_whatif.text.replay import replay_text

    if trace is not None:
        check_writable(trace, plan)
    if not jitter and runs is not None:
        raise InputError("--runs needs --jitter SIGMA; without it all runs are equal.")
    if not jitter and seed is not None:
        raise InputError("--seed needs --jitter SIGMA.")
    slow = dict(_slow_device(text) for text in slow_device)
    if len(slow) < len(slow_device):
        raise InputError("--slow-device names a device twice; give each once.")
    read = read_plan(plan)
    if read.status == "infeasible":
        note(f"{plan}: nothing to replay; the problem has no feasible plan: {read.diagnosis or 'no reason given'}")
        raise typer.Exit(NO_PLAN)
    with share_line() as tell:
        replayed = nest.simulate(
            read, source=plan, jitter=jitter, seed=seed or 0, runs=runs, slow_devices=slow, progress=tell
        )
    warn_of_plugins()
    if trace is not None:
        write_text(trace, trace_text(replayed))
    document = replayed.to_dict()
    show(as_json, document, lambda screen: replay_text(document, read, screen))


def _slow_device(text: str) -> tuple[str, float]:
    """Parse `STAGE[/REPLICA]=FACTOR` into the place and the factor."""
    place, _, factor = text.partition("=")
    try:
        return place.strip(), float(factor)
    except ValueError:
        raise InputError(
            f"--slow-device takes STAGE[/REPLICA]=FACTOR, such as --slow-device 2/0=1.3; got {text!r}."
        ) from None
