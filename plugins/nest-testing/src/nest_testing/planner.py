"""Checks of planners (`nest.hooks.protocols.Planner`)."""

from collections.abc import Iterator, Sequence
from functools import partial

from attrs import evolve

from nest.errors import InputError
from nest.hooks.planning import PlannerContext, Proposal, assessed, widened
from nest.hooks.protocols import Planner
from nest.hooks.registry import registry
from nest.instance import Candidate, Cluster, Instance, LayerGraph, Level, ParameterGroup, RecomputeMode, Result, Space
from nest.public.checks import sound_proposal, structure_violations
from nest.spec.constraints import parse
from nest_testing.finding import Finding, Problems, Tally

LAYERS = 6
EVALUATIONS = 50  # Plans that a planner may price: enough to see that it ends.
UNKNOWN = "nobody-s-option"  # An option that no planner has.
ROOMY, TIGHT, TOO_SMALL = 1e12, 4e9, 1e6  # Bytes of a device: for any plan, for some, for none.


def check_planner(planner: Planner) -> tuple[Finding, ...]:
    """Let it plan six layers on eight devices: with ample, little and no memory, and under a constraint."""
    tally = Tally()
    for where, instance in _instances():
        with tally.untouched(where, instance):
            if tally.run("it proposes what the problem has words for", where, _unsound, planner, instance):
                tally.run("what it decides is a plan of the problem", where, _no_plan, planner, instance)
                tally.run("it says why there is no plan", where, _unexplained, planner, instance)
                tally.steady("it says the same every time", where, partial(_proposal, planner, instance))
    tally.run("some plan is found", "memory enough", _finds_nothing, planner, _instance(ROOMY))
    tally.run("one line says how it plans", "its summary", _no_summary, planner)
    if hasattr(planner, "with_options"):
        tally.run("it refuses an option that it lacks", "its options", _unrefused, planner)
    return tally.findings()


def _instances() -> Iterator[tuple[str, Instance]]:
    yield "memory enough", _instance(ROOMY)
    yield "little memory", _instance(TIGHT)
    yield "too little memory", _instance(TOO_SMALL)
    roomy = _instance(ROOMY)
    yield "two stages asked for", evolve(roomy, space=evolve(roomy.space, constraints=(parse("pp == 2"),)))


def _instance(memory: float) -> Instance:
    """Return a chain of equal layers: 4 ms and 1 GB each on one device, half on each of two, small messages."""
    known = registry()
    chain = tuple((index, (index + 1,)) for index in range(LAYERS - 1))
    levels = (Level("node", 4, 100e9, 1e-6), Level("spine", 2, 10e9, 1e-5))
    return Instance(
        cluster=Cluster(levels, memory),
        graph=LayerGraph(tuple(f"layer {index}" for index in range(LAYERS)), chain),
        candidates=tuple(_candidate(width, samples) for width in (1, 2) for samples in (1, 2)),
        space=Space(
            global_batch=16,
            uneven_batch=False,
            exposed=1.0,
            schedules=(known.schedules()["1f1b"],),
            rank_orders=("pp-inner", "dp-inner"),
            zero=(0, 1, 3),
            blocks=tuple((index,) for index in range(LAYERS)),
        ),
        collectives=next(iter(known.collective_models().values())),
    )


def _candidate(width: int, samples: int) -> Candidate:
    def each(amount: float) -> list[float]:
        return [amount / width] * LAYERS

    held, nothing = each(2e8 * samples), each(0.0)
    return Candidate(
        name=f"tp{width}-mb{samples}",
        degrees={"tp": width},
        width=width,
        samples=samples,
        forward=each(1.2e-3 * samples),
        backward=each(2.4e-3 * samples),
        state=(ParameterGroup("dense", (0,), each(2e8), each(2e8), each(6e8), each(1e-3)),),
        recompute=(
            RecomputeMode("none", nothing, held, held, nothing),
            RecomputeMode("full", each(1.2e-3 * samples), nothing, nothing, held, stash_inputs=True),
        ),
        tensor_bytes=[1e6 * samples] * (LAYERS - 1),
    )


def _proposal(planner: Planner, instance: Instance) -> Proposal:
    return sound_proposal(planner.plan(instance, _context(instance)), instance)


def _context(instance: Instance) -> PlannerContext:
    def search(other: Instance) -> Result:
        from nest.public.planning import solve

        return solve(other)

    def on_network(levels: Sequence[Level]) -> Instance:
        return evolve(instance, cluster=evolve(instance.cluster, levels=tuple(levels)))

    return PlannerContext(1, EVALUATIONS, partial(assessed, instance), search, on_network)


def _unsound(planner: Planner, instance: Instance) -> None:
    _proposal(planner, instance)


def _no_plan(planner: Planner, instance: Instance) -> Problems:
    """Object if its decisions are no plan; those that break a limit are one, priced and reported as such."""
    solution = _proposal(planner, instance).solution
    if solution is not None:
        yield from structure_violations(widened(instance, solution, registry().schedules()), solution)


def _unexplained(planner: Planner, instance: Instance) -> Problems:
    proposal = _proposal(planner, instance)
    if proposal.solution is None and proposal.decisions is None and not any(proposal.remarks):
        yield "it proposes no plan, and its remarks do not say why"


def _finds_nothing(planner: Planner, instance: Instance) -> Problems:
    proposal = _proposal(planner, instance)
    if proposal.solution is None and proposal.decisions is None:
        yield "it finds no plan for layers that fit on one device"


def _no_summary(planner: Planner) -> Problems:
    if not isinstance(planner.summary, str) or not planner.summary.strip() or "\n" in planner.summary:
        yield f"the summary is {planner.summary!r}"


def _unrefused(planner: Planner) -> Problems:
    try:
        planner.with_options({UNKNOWN: "1"})  # type: ignore[attr-defined]
    except InputError as error:
        if UNKNOWN not in str(error):
            yield f"its error does not name the option: {error}"
    else:
        yield f"it takes an option {UNKNOWN!r}"
