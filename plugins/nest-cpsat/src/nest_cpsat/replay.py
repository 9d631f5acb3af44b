"""Paths through the passes of a batch, which bound replays from below (PROBLEM.md section 4, "Price and replay").

Each pass of a path waits for the one before, on the same device or for its message. A path's time is a sum over any
stages. So the path that decides one plan's replay bounds the replays of all plans with as many stages and
micro-batches, and excludes those that are too slow for the same reason.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import define, field, frozen

from nest.instance import chunks_of
from nest.instance.schedule import BACKWARD, FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS, places_of, runs
from nest_cpsat.scaling import largest_slowest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest.instance import Schedule
    from nest_cpsat.cases import Case, Path, Step
    from nest_cpsat.placement import Term
    from nest_cpsat.scaling import Scale

PARTS = {FORWARD: (FORWARD,), BACKWARD: (INPUT_GRADIENTS, WEIGHT_GRADIENTS)}
"""Parts of each pass that is not a part itself."""

KINDS = (FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS)
MESSAGES = {FORWARD: "arriving", INPUT_GRADIENTS: "returning"}


class Event(NamedTuple):
    """Passes that a device runs at once."""

    device: int
    steps: tuple[Step, ...]
    waits: tuple[tuple[int, Step], ...]  # Event and step of each awaited message.


@frozen(eq=False)
class Passes:
    """Ticks of the passes of a case, as terms of its model."""

    route: Sequence[int]  # Stage of each chunk in pipeline order.
    terms: dict[Step, Term]  # Of each step; messages are separate steps, ZeRO communication is included.
    waits: Sequence[Term]  # By stage, time that its passes together wait for ports.
    hiding: bool  # Messages hide under compute.

    def lengths(self, value: Callable[[Term], int]) -> tuple[dict[Step, float], dict[Step, float]]:
        """Time of each part of a pass in a solution, and of the message before it."""
        found = {step: float(value(term)) for step, term in self.terms.items()}
        own = Counter(self.route)
        travel = {}
        for stage in own:
            chunks = [chunk for chunk, home in enumerate(self.route) if home == stage]
            sent = sum(found[way, chunk] for way in MESSAGES.values() for chunk in chunks)
            compute = sum(found[kind, chunk] for kind in KINDS for chunk in chunks)
            share = min(compute / sent, 1.0) if self.hiding and sent else 0.0
            for chunk in chunks:
                for kind in KINDS:
                    message = found.get((MESSAGES.get(kind, ""), chunk), 0.0)
                    found[kind, chunk] += (1 - share) * message
                    travel[kind, chunk] = share * message
            without = sum(found[kind, chunk] for kind in KINDS for chunk in chunks)
            growth = 1 + value(self.waits[stage]) / without if without else 1.0
            found |= {(kind, chunk): growth * found[kind, chunk] for kind in KINDS for chunk in chunks}
        return found, travel

    def least(self, path: Path) -> list[tuple[int, Term]]:
        """Terms of a lower bound on a path, with their counts."""
        counts = Counter(dict(path))
        if not self.hiding:  # Then each pass is at it as long as its message takes.
            counts |= Counter({(MESSAGES[kind], chunk): n for (kind, chunk), n in path if kind in MESSAGES})
        found = [(n, self.terms[step]) for step, n in counts.items()]
        for stage in dict.fromkeys(self.route):
            chunks = [chunk for chunk, home in enumerate(self.route) if home == stage]
            # Of passes that all take longer by one factor, so many times a micro-batch of the whole stage does.
            found.append((min(counts[kind, chunk] for kind in KINDS for chunk in chunks), self.waits[stage]))
        return [(n, term) for n, term in found if n and not (isinstance(term, int) and term == 0)]


def step_time(
    model: CpModel,
    closed_form: Term,
    passes: Passes | None,
    paths: Sequence[Path],
    scale: Scale,
    sync: IntVar,
    most: int,
) -> IntVar:
    """Step time of a plan in ticks: its closed form, or its longest path.

    Args:
        passes: their times; None: there are no paths.
        sync: time per batch.
        most: limit on the step time.
    """
    batch = model.new_int_var(0, most, "batch")
    if passes is None or not paths:
        model.add(batch == closed_form)
        return batch
    model.add(batch >= closed_form)
    known: list[tuple[Term, IntVar]] = []
    for path in paths:
        total: Term = 0
        for n, term in passes.least(path):
            ticks = next((variable for same, variable in known if same is term), None)
            if ticks is None:
                # A variable of its own, so that no count multiplies the coefficients of a time.
                ticks = model.new_int_var(0, largest_slowest(scale, most), "")
                model.add(ticks == term)
                known.append((term, ticks))
            total = total + n * scale.parts * ticks
        model.add(batch >= total + scale.sync * sync)
    return batch


@define(eq=False)
class Paths:
    """Paths that decided replays, for cases with the same passes."""

    _events: dict[object, list[Event]] = field(factory=dict)
    _paths: dict[object, dict[Path, None]] = field(factory=dict)

    def of(self, case: Case) -> list[Path]:
        """Paths found so far."""
        return list(self._paths.get(_key(case), {}))

    def exclude(
        self, case: Case, model: Any, value: Callable[[Any], int], choices: Sequence[Any], excluded: list[Any]
    ) -> None:
        """Exclude a priced plan, and keep the path that decides its replay.

        `choices` has the model's form; `excluded` is added to.
        """
        excluded.append((choices, [next(level for level, here in near.items() if value(here)) for near in model.near]))
        passes: Passes | None = getattr(model, "passes", None)
        if passes is None:
            return
        key = _key(case)
        if key not in self._events:
            self._events[key] = events(case.schedule, case.stages, case.micro_batches)
        staggered = bool(getattr(case.schedule, "staggered", False))
        path = longest_path(self._events[key], *passes.lengths(value), staggered=staggered)
        self._paths.setdefault(key, {})[path] = None


def _key(case: Case) -> object:
    return case.schedule.name, chunks_of(case.schedule), case.stages, case.micro_batches


def events(schedule: Schedule, stages: int, micro_batches: int) -> list[Event]:
    """Passes of a batch, each after those it waits for; empty if they deadlock."""
    places = places_of(schedule, stages, micro_batches)
    orders = [runs(schedule.order(stage, stages, micro_batches)) for stage in range(1, stages + 1)]  # type: ignore[attr-defined]
    last, done, listed = len(places.route) - 1, [0] * stages, list[Event]()
    sent: dict[tuple[str, int, int], int] = {}
    moved = True
    while moved:
        moved = False
        for device, order in enumerate(orders):
            while done[device] < len(order):
                steps, waits, sends = [], [], []
                for each in order[done[device]]:
                    place = places.place(device, each)
                    parts = PARTS.get(each.kind, (each.kind,))
                    steps += [(part, place) for part in parts]
                    if (kind := parts[0]) in MESSAGES:
                        sends.append((kind, place, each.micro_batch))
                        if place != (0 if kind == FORWARD else last):
                            sender = kind, place + (-1 if kind == FORWARD else 1), each.micro_batch
                            waits.append((sent.get(sender, -1), (kind, place)))
                if any(number < 0 for number, _ in waits):
                    break
                sent.update(dict.fromkeys(sends, len(listed)))
                listed.append(Event(device, tuple(steps), tuple(waits)))
                done[device] += 1
                moved = True
    return listed if done == [len(order) for order in orders] else []


def longest_path(
    every: Sequence[Event], lengths: dict[Step, float], travel: dict[Step, float], *, staggered: bool
) -> Path:
    """Path that ends last; if `staggered`, the longest from a device's first pass to its last."""
    ends: list[float] = []
    came: list[tuple[int, Step | None]] = []
    own: dict[int, list[int]] = {}
    message: Step | None
    for number, event in enumerate(every):
        before = own.setdefault(event.device, [])
        ready, origin, message = (ends[before[-1]], before[-1], None) if before else (0.0, -1, None)
        for sender, step in event.waits:
            if ends[sender] + travel[step] > ready:
                ready, origin, message = ends[sender] + travel[step], sender, step
        came.append((origin, message))
        ends.append(ready + sum(lengths[step] for step in event.steps))
        before.append(number)
    begins = {
        device: ends[first] - sum(lengths[step] for step in every[first].steps) if staggered else 0.0
        for device, (first, *_) in own.items()
    }
    device = max(own, key=lambda each: ends[own[each][-1]] - begins[each])
    chain: list[tuple[int, Step | None]] = []
    number = own[device][-1]
    while number >= 0:
        chain.append((number, came[number][1]))
        number = came[number][0]
    if staggered:
        # What is ahead of the device's own passes does not count, and up to the first on the path it runs them alone.
        left = max(place for place, (number, _) in enumerate(chain) if every[number].device == device)
        front = own[device][: own[device].index(chain[left][0])]
        chain = [*chain[:left], (chain[left][0], None), *((number, None) for number in front)]
    counts: Counter[Step] = Counter()
    for number, waited in chain:
        counts.update(every[number].steps)
        if waited is not None:
            counts[MESSAGES[waited[0]], waited[1]] += 1
    return tuple(sorted(counts.items()))
