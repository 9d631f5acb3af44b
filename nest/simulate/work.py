"""From decisions to what each stage has to do: PROBLEM.md section 4 in pieces of passes."""

from collections.abc import Iterable

from attrs import evolve

from nest.instance import Candidate, Instance, RecomputeMode, Solution
from nest.simulate.boundaries import Cuts, levels, message, places
from nest.simulate.ports import held_up, ports_of, shown_once, time_of
from nest.simulate.records import Piece, Ports, StageWork
from nest.simulate.sharding import Groups, Sharding, sharding

WEIGHTS_SHARE = 0.5
"""Share of a backward pass, recomputation apart, that finds the gradients of weights: a matrix product takes as many
FLOP for either gradient (arXiv 2401.10241, table 1, but for the attention core)."""


def stage_works(instance: Instance, solution: Solution) -> tuple[StageWork, ...]:
    """What every stage of a plan has to do.

    Communication of data parallelism is counted for a whole stage; each of its chunks has an equal share.
    """
    dealt = places(instance, solution)
    cuts = Cuts(instance, dealt)
    in_front = levels(instance, solution)
    groups = Groups(instance, solution)
    count = len(solution.stages)
    found = []
    micro_batches = instance.micro_batches(instance.candidates[solution.stages[0].candidate], solution.replicas)
    assert micro_batches is not None  # It is a plan of the problem.
    for index, stage in enumerate(solution.stages):
        candidate = instance.candidates[stage.candidate]
        mode = candidate.mode(stage.recompute)
        chunks = [list(layers) for layers in dealt[index::count]]
        layers = list(stage.layers)
        compute = float((candidate.forward[layers] + candidate.backward[layers] + mode.extra[layers]).sum())
        shared = sharding(instance, groups, stage, compute)
        around = (in_front[index], in_front[(index + 1) % count])
        passes: dict[tuple[str, int], tuple[Piece, ...]] = {}
        entering, messages = [], []
        for chunk, layers in enumerate(chunks):
            place = chunk * count + index
            entering.append(cuts.in_front(candidate, place))
            arriving = message(instance, entering[chunk], around[0])
            returning = message(instance, cuts.in_front(candidate, place + 1), around[1])
            messages += [(around[0], arriving), (around[1], returning)]
            for kind, pieces in _passes(candidate, mode, layers, arriving, returning, shared, solution.chunks).items():
                passes[kind, chunk] = pieces
        ports = ports_of(candidate, mode, list(stage.layers), messages, shared)
        if ports is not None:
            passes = held_up(passes, ports)
            shared = evolve(shared, shown=shown_once(instance, shared, ports, time_of(passes), micro_batches))
        found.append(_work(instance, candidate, mode, stage.zero, passes, shared, ports, chunks, entering))
    return tuple(found)


def _passes(
    candidate: Candidate,
    mode: RecomputeMode,
    layers: list[int],
    arriving: float,
    returning: float,
    shared: Sharding,
    chunks: int,
) -> dict[str, tuple[Piece, ...]]:
    """Pieces of every kind of pass over one chunk.

    A stage first receives, then gathers weights that are sharded, computes, and scatters gradients.
    """
    backward = float(candidate.backward[layers].sum())
    before = [
        ("receive-gradients", returning),
        ("gather-weights", shared.gather / chunks),
        ("recompute", float(mode.extra[layers].sum())),
    ]
    after = ("reduce-gradients", shared.scatter / chunks)
    return {
        "forward": _pieces(
            [
                ("receive-activations", arriving),
                ("gather-weights", shared.gather / chunks),
                ("forward", float(candidate.forward[layers].sum())),
            ]
        ),
        "backward": _pieces([*before, ("backward", backward), after]),
        "input-gradients": _pieces([*before, ("input-gradients", backward * (1 - WEIGHTS_SHARE))]),
        "weight-gradients": _pieces([("weight-gradients", backward * WEIGHTS_SHARE), after]),
    }


def _work(
    instance: Instance,
    candidate: Candidate,
    mode: RecomputeMode,
    zero: int,
    passes: dict[tuple[str, int], tuple[Piece, ...]],
    shared: Sharding,
    ports: Ports | None,
    chunks: list[list[int]],
    entering: list[float],
) -> StageWork:
    """The stage with its memory: what it keeps of a micro-batch is counted chunk by chunk."""
    stashed = [each if mode.stash_inputs else 0.0 for each in entering]
    kept = [float(mode.more[layers].sum()) + stash for layers, stash in zip(chunks, stashed, strict=True)]
    first = sum(float(mode.first[layers].sum()) for layers in chunks) - sum(kept)
    gathered = candidate.gathered if zero >= 3 else 0.0
    return StageWork(
        passes=passes,
        synchronisation=_pieces(
            [
                ("reduce-gradients", shared.reduce * shared.shown),
                ("update", shared.update),
                ("gather-weights", shared.refresh * shared.shown),
            ]
        ),
        standing=shared.state + instance.cluster.reserve,
        kept=tuple(kept),
        first=first,
        transient=tuple(float(mode.peak[layers].max()) + gathered for layers in chunks),
        in_step=shared.in_step,
        ports=ports,
    )


def _pieces(told: Iterable[tuple[str, float]]) -> tuple[Piece, ...]:
    """What takes time."""
    return tuple(Piece(kind, seconds) for kind, seconds in told if seconds > 0)
