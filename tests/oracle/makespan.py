"""Section 4 of PROBLEM.md, "Price and replay": the seconds of passes, and the batch as one event after the other."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, reduce

from tests.oracle.costs import Shared, compute_time, finding_weight_gradients, over
from tests.oracle.parts import Part, mode_of
from tests.oracle.schedules import Pipeline
from tests.oracle.settings import given

CLOSED = ("nest", "1f1b", "gpipe")
"""Schedules that a problem may ask to be priced by their closed form alone."""


def replayed(problem: dict, pipeline: Pipeline) -> bool:
    """Whether plans of a schedule are priced by the larger of closed form and replay; a profile has to ask."""
    asked = given(problem["training"], "price", "closed-form")
    return pipeline.order is not None and (asked == "replay" or pipeline.name not in CLOSED)


@dataclass(frozen=True)
class Chunk:
    """Seconds of the passes of one chunk, numbers or arrays.

    Attributes:
        seconds: of a forward pass `f`, a whole backward pass `b`, or its parts, `i` for inputs and `w` for weights.
        hidden: of the message before a forward pass `f` and before a backward one `b`, what does not occupy the stage.
    """

    seconds: dict
    hidden: dict


def chunk_of(front, behind, gathered, scattered, computed, *, beside=0.0, grown=1.0) -> Chunk:
    """A chunk that computes `(forward, recomputed, backward, weight gradients)` seconds.

    `front` and `behind` arrive; of both the share `beside` hides. Waiting for ports or links makes passes `grown` times
    as long.
    """
    forward, extra, backward, gradients = computed
    f = front * (1 - beside) + gathered + forward
    i = behind * (1 - beside) + gathered + extra + backward - gradients
    w = gradients + scattered
    return Chunk(
        {"f": f * grown, "b": (i + w) * grown, "i": i * grown, "w": w * grown},
        {"f": front * beside, "b": behind * beside},
    )


def computed_by(candidate: dict, run, recompute: str | Part) -> tuple[float, float, float, float]:
    """Seconds of a chunk's forward pass, of what is recomputed, of its backward pass, and of weight gradients in it."""
    rows = (candidate["forward"], mode_of(candidate, recompute)["extra"], candidate["backward"])
    return (*(over(run, row) for row in rows), over(run, finding_weight_gradients(candidate)))


def shares(candidate: dict, runs, kind: str, sent: list[tuple]) -> list:
    """What each chunk of a stage sends of its parameters' collectives: latencies in equal parts, the rest by bytes.

    `sent` has for each parameter group the latencies and the other seconds of one collective of the whole stage.
    """
    found = [0.0] * len(runs)
    for group, (latency, rest) in zip(candidate["state"].values(), sent, strict=True):
        sizes = [over(run, group[kind]) for run in runs]
        for chunk, size in enumerate(sizes):
            found[chunk] = found[chunk] + latency / len(runs) + (rest * (size / sum(sizes)) if size else 0.0)
    return found


def chunks_of(
    candidate: dict, runs, recompute: str | Part, shared: Shared, arriving, returning, hides: bool, time
) -> list:
    """The chunks of a stage that needs `time` for a micro-batch; `arriving` and `returning` are seconds by chunk."""
    layers = sorted(layer for run in runs for layer in run)
    compute, messages = compute_time(candidate, layers, recompute), sum(arriving) + sum(returning)
    beside = min(1.0, compute / messages) if hides and messages else 0.0
    alone = compute + messages * (1 - beside) + shared.often
    gathered = shares(candidate, runs, "weights", shared.gathers)
    scattered = shares(candidate, runs, "gradients", shared.scatters)
    parts = zip(arriving, returning, gathered, scattered, strict=True)
    return [
        chunk_of(*each, computed_by(candidate, run, recompute), beside=beside, grown=time / alone if alone else 1.0)
        for run, each in zip(runs, parts, strict=True)
    ]


@dataclass(frozen=True)
class Event:
    """A pass, or two that run together.

    Attributes:
        device: that runs it, from 0.
        before: what it does before, by its number; None: nothing.
        passes: kinds and chunks, by their numbers in the pipeline.
        needs: the events that send to it, and the kind and the chunk of the message.
    """

    device: int
    before: int | None
    passes: tuple[tuple[str, int], ...]
    needs: tuple[tuple[int, str, int], ...]


def orders(pipeline: Pipeline, stages: int, micro_batches: int) -> list[list[tuple[tuple[str, int, int], ...]]]:
    """For each device its passes in turn, each with those it runs with: kind, chunk of the pipeline, micro-batch."""
    route, found = pipeline.route(stages), []
    for device in range(stages):
        places = [place for place, stage in enumerate(route) if stage == device]
        begins = [0] * len(places)
        if pipeline.said.copies == 2:  # A second pipeline runs against the first, with the other half of the batch.
            places, begins = [device, stages - 1 - device], [0, micro_batches // 2]
        done: Counter[tuple[str, int]] = Counter()
        own = []
        for each in pipeline.order(device + 1, stages, micro_batches, pipeline.chunks):
            together = []
            for kind, chunk in [(name[0], int(name[1:])) for name in ([each] if isinstance(each, str) else each)]:
                counted = "iw" if kind == "b" else kind
                together.append((kind, places[chunk], begins[chunk] + done[counted[0], chunk]))
                done.update((part, chunk) for part in counted)
            own.append(tuple(together))
        found.append(own)
    return found


@lru_cache(maxsize=512)
def events(pipeline: Pipeline, stages: int, micro_batches: int) -> tuple[Event, ...]:
    """A batch, each event behind those that it waits for.

    Raises:
        ValueError: some wait for each other.
    """
    work, last = orders(pipeline, stages, micro_batches), len(pipeline.route(stages)) - 1
    found: list[Event] = []
    sent: dict[tuple[str, int, int], int] = {}
    before: list[int | None] = [None] * stages
    following = [0] * stages
    moved = True
    while moved:
        moved = False
        for device, own in enumerate(work):
            while following[device] < len(own):
                together = own[following[device]]
                needs = [
                    ((kind, place - 1, number), "f", place) if kind == "f" else (("b", place + 1, number), "b", place)
                    for kind, place, number in together
                    if kind != "w" and place != (0 if kind == "f" else last)
                ]
                if not all(message in sent for message, *_ in needs):
                    break
                passes = tuple((kind, place) for kind, place, _ in together)
                waits = tuple((sent[message], kind, place) for message, kind, place in needs)
                for kind, place, number in together:
                    if kind != "w":
                        sent["f" if kind == "f" else "b", place, number] = len(found)
                found.append(Event(device, before[device], passes, waits))
                before[device] = len(found) - 1
                following[device] += 1
                moved = True
    if len(found) < sum(map(len, work)):
        raise ValueError(f"passes of {pipeline.name} wait for each other")
    return tuple(found)


def makespan(pipeline: Pipeline, stages: int, micro_batches: int, chunks, largest: Callable = max):
    """The end of the last pass where every device runs its passes in turn, from time 0 on.

    Where optimizer steps do not wait for each other, a device counts from the beginning of its own first pass.
    `chunks` are those of the pipeline in their order; with arrays, `largest` is that of two arrays.
    """
    ends: list = []
    begun: dict = {}
    done: dict = {}
    for event in events(pipeline, stages, micro_batches):
        start = 0.0 if event.before is None else ends[event.before]
        for sender, kind, place in event.needs:
            start = largest(start, ends[sender] + chunks[place].hidden[kind])
        ends.append(start + sum(chunks[place].seconds[kind] for kind, place in event.passes))
        begun.setdefault(event.device, start)
        done[event.device] = ends[-1]
    return reduce(largest, (end - (begun[device] if pipeline.staggered else 0.0) for device, end in done.items()))


def priced(problem: dict, pipeline: Pipeline, micro_batches: int, closed: float, stages, syncs) -> dict:
    """The step time of a plan: its closed form, or, replayed, its makespan and the longest `y` where that is more.

    `stages` are the chunks of each stage. What a schedule does not admit has no order.
    """
    if not replayed(problem, pipeline) or not pipeline.admits(len(stages), micro_batches):
        return {"batch_time": closed, "closed_form": closed, "makespan": None}
    whole = makespan(pipeline, len(stages), micro_batches, in_order(pipeline, stages))
    return {"batch_time": max(closed, whole + max(syncs)), "closed_form": closed, "makespan": whole}


def in_order(pipeline: Pipeline, stages) -> list[Chunk]:
    """The chunks of all stages, each given by stage, in the order of the pipeline."""
    following = list(map(iter, stages))
    return [next(following[stage]) for stage in pipeline.route(len(stages))]
