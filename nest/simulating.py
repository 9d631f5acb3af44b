"""From a plan to its replay."""

from collections.abc import Mapping
from pathlib import Path

from nest import planner
from nest.errors import InputError
from nest.formulate.fixed_plan import decided_instance
from nest.formulate.problem import Source, carried_problem
from nest.hooks.registry import Registry, registry
from nest.instance import Instance
from nest.io import placed
from nest.plan import check
from nest.plan.document import solution_of
from nest.simulate.disturbance import Disturbance, SlowDevice
from nest.simulate.replay import Replay, replay
from nest.simulate.running import Progress
from nest.spec import PlanDocument
from nest.units import shown

USUAL_RUNS = 100
"""Runs with jitter, where nobody says how many."""


def simulate(
    plan: Source | PlanDocument,
    *,
    jitter: float = 0.0,
    seed: int = 0,
    runs: int | None = None,
    slow_devices: Mapping[str, float] | None = None,
    progress: Progress | None = None,
    plugins: Registry | None = None,
    source: Path | None = None,
) -> Replay:
    """The batch of a plan whose numbers hold, replayed pass by pass.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        jitter: standard deviation of the logarithm of each task's factor, whose mean is 1; 0: none.
        seed: of the random numbers.
        runs: batches replayed with jitter; left out, 100.
        slow_devices: by `STAGE` or `STAGE/REPLICA`, how many times as long it computes; stages are counted from 1,
            replicas from 0, the one meant where none is named.
        progress: told how far it is.
        plugins: registered schedules and the like; left out, those installed.
        source: the file that a `PlanDocument` was read from, which errors then name; a pipe can be read only once.

    Raises:
        InputError: the plan cannot be read, is infeasible or does not hold; its schedule cannot be replayed; or what is
            asked for does not fit it.
    """
    known = plugins or registry()
    disturbance = _disturbance(jitter, seed, runs, slow_devices or {})
    if source is None and isinstance(plan, (str, Path)):
        source = Path(plan)
    return known.run(lambda: _simulate(planner.read_plan(plan), source, disturbance, progress, known))


def _simulate(
    read: PlanDocument,
    source: Path | None,
    disturbance: Disturbance | None,
    progress: Progress | None,
    known: Registry,
) -> Replay:
    if read.status == "infeasible":
        why = read.diagnosis or "no reason is given"
        raise InputError(f"the plan is infeasible, so there is nothing to replay: {why}")
    instance = _instance(source, read, known)
    report = check(instance, read)
    if not report.ok:
        raise InputError(f"the plan does not hold, so it is not replayed: {report.disagreements[0]}")
    return replay(instance, solution_of(instance, read), disturbance, progress)


def _instance(source: Path | None, read: PlanDocument, known: Registry) -> Instance:
    try:
        return decided_instance(carried_problem(read, known), read, known)
    except InputError as error:
        raise (error if source is None else placed(source, error, "problem")) from None


def _disturbance(jitter: float, seed: int, runs: int | None, slow_devices: Mapping[str, float]) -> Disturbance | None:
    """What does not go as planned; None: all does."""
    slow = tuple(_slow_device(place, factor) for place, factor in slow_devices.items())
    if runs is None:
        runs = USUAL_RUNS if jitter else 1
    found = Disturbance(jitter, seed, runs, slow)
    return found if jitter or slow else None


def _slow_device(place: str, factor: float) -> SlowDevice:
    stage, slash, replica = place.partition("/")
    if not stage.isdecimal() or not (replica.isdecimal() if slash else True) or int(stage) < 1:
        raise InputError(
            f"a slow device is named by its stage, counted from 1, and its replica, counted from 0, such as 2/0; "
            f"got {shown(place)}."
        )
    if isinstance(factor, bool) or not isinstance(factor, (int, float)):
        raise InputError(f"the factor of the slow device {place} must be a number above 0, is {shown(factor)}.")
    return SlowDevice(int(stage) - 1, int(replica or 0), float(factor))
