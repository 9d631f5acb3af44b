"""Weights over the parts of a stage's time: exact where their docstrings say, bounded elsewhere, as published."""

from collections.abc import Iterator
from itertools import accumulate
from random import Random

import pytest

from nest.hooks.registry import registry
from nest.instance import ChunkedSchedule, OrderedSchedule, admits, chunks_of, copies_of, fullest_moments, weights_of
from nest.instance.schedule import BACKWARD, FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS, places_of
from nest.plan.certificate import batch_length, is_staggered
from nest.simulate.timeline import orders_of
from nest_testing.schedule import beyond_bound

NAMES = tuple(registry().schedules())
SHAPES = [(stages, count) for stages in (2, 3, 4, 6) for count in (1, 2, 3, 4, 6, 8, 12, 16, 24)]
DRAWS = 100
"""Of each schedule; of unequal stages ten times as many."""

Parts = tuple[float, float, float]
"""Seconds per micro-batch of forward passes, gradients of inputs and those of weights."""


def named(name: str, chunks: int = 2) -> OrderedSchedule:
    schedule = registry().schedules()[name]
    schedule = schedule.with_chunks(chunks) if isinstance(schedule, ChunkedSchedule) else schedule
    assert isinstance(schedule, OrderedSchedule)
    return schedule


def draws(name: str, count: int = DRAWS) -> Iterator[tuple[Random, OrderedSchedule, int, int]]:
    """Random numbers, a schedule, stages and micro-batches that it admits."""
    for seed in range(count):
        random = Random(f"{name} {seed}")
        schedule = named(name, random.randint(2, 4))
        yield random, schedule, *random.choice([shape for shape in SHAPES if admits(schedule, *shape)])


def taken(schedule: OrderedSchedule, stages: int, micro_batches: int, parts: Parts, *, staggered: bool) -> float:
    """What equal stages take in the order of a schedule."""
    chunks, (forward, inputs, weights) = chunks_of(schedule), parts
    kinds = {FORWARD: forward, BACKWARD: inputs + weights, INPUT_GRADIENTS: inputs, WEIGHT_GRADIENTS: weights}
    lengths = {(kind, chunk): seconds / chunks for kind, seconds in kinds.items() for chunk in range(chunks)}
    orders, places = orders_of(schedule, stages, micro_batches), places_of(schedule, stages, micro_batches)
    return batch_length(orders, places, [lengths] * stages, staggered)


def priced(schedule: OrderedSchedule, stages: int, micro_batches: int, parts: Parts) -> float:
    weights = weights_of(schedule, micro_batches, stages)
    return weights.slowest * sum(parts) + stages * float(weights.of_parts(*parts))


def cone(name: str, random: Random) -> Parts:
    """Parts for which the weights of a schedule are exact, as its docstring has it."""
    forward, inputs, share = random.uniform(0.1, 2.0), random.uniform(0.1, 2.0), random.random()
    if name in ("1f1b", "gpipe", "nest", "interleaved"):
        return forward, inputs, share * (forward + inputs)
    if name == "zb-v":
        forward, inputs = sorted((forward, inputs))
    if name in ("zero-bubble", "interleaved-zero-bubble", "zb-v"):
        return forward, inputs, share * min(forward, inputs)
    if name == "zero-bubble-h2":
        return forward * share, forward, forward * share
    return forward, forward, forward * share


@pytest.mark.longer
@pytest.mark.parametrize("name", NAMES)
def test_equal_stages_take_what_weights_say_in_the_cone_of_a_schedule(name: str) -> None:
    for random, schedule, stages, micro_batches in draws(name):
        parts = cone(name, random)
        found = taken(schedule, stages, micro_batches, parts, staggered=is_staggered(schedule))
        assert found == pytest.approx(priced(schedule, stages, micro_batches, parts), rel=1e-9), (stages, micro_batches)


@pytest.mark.longer
@pytest.mark.parametrize("name", NAMES)
def test_unequal_stages_keep_to_the_bound(name: str) -> None:
    """docs/explanation/simulation.md, "The bound"."""
    for random, schedule, stages, micro_batches in draws(name, 3 * DRAWS):
        parts = []
        for _ in range(stages):
            forward, inputs = (random.choice((0.0, random.random(), 4 * random.random())) for _ in range(2))
            parts.append((forward, inputs, random.choice((0.0, 1.0, random.random())) * inputs))
        if any(map(sum, parts)):
            assert list(beyond_bound(schedule, micro_batches, parts)) == [], (stages, micro_batches, parts)


def test_short_gradients_of_weights_make_up_for_no_bubble() -> None:
    """By hand: of four stages of `f = b = 1` only the first has `w = 1`: `3 M + 3/4 * (8 - 1)` by the weights."""
    parts = [(1.0, 1.0, 1.0), *[(1.0, 1.0, 0.0)] * 3]
    assert list(beyond_bound(named("zero-bubble"), 12, parts)) == []
    weights = weights_of(named("zero-bubble"), 12, 4)
    price = weights.slowest * 3 + sum(float(weights.of_parts(*each)) for each in parts)
    assert price == pytest.approx(36 + 3 / 4 * 7)
    assert price > 36 + 3  # What equal stages of the longest passes are priced at.


@pytest.mark.parametrize("name", NAMES)
def test_memory_over_time_is_never_above_that_of_the_moments(name: str) -> None:
    """Of chunks of any sizes; it is reached at one of them."""
    for random, schedule, stages, micro_batches in draws(name):
        chunks = chunks_of(schedule)
        sizes = [random.choice((1.0, random.random())) for _ in range(chunks)]
        for stage, order in enumerate(orders_of(schedule, stages, micro_batches), start=1):
            signs = {FORWARD: 1.0, INPUT_GRADIENTS: 0.0}
            most = max(accumulate(sizes[step.chunk] * signs.get(step.kind, -1.0) for step in order))
            moments = fullest_moments(schedule, stage, stages, micro_batches)
            counted = max(sum(held * size for held, size in zip(row, sizes, strict=True)) for row in moments)
            assert most == pytest.approx(counted)


@pytest.mark.parametrize(("stages", "micro_batches"), [(4, 8), (4, 20), (6, 12), (8, 16), (8, 24)])
def test_bubbles_are_those_published(stages: int, micro_batches: int) -> None:
    """Table 2 of arXiv 2401.10241 and its section 6; V-ZB of arXiv 2405.15362; the README of deepseek-ai/DualPipe.

    By `T_F`, `T_B` and `T_W`; the README's B is `T_B + T_W`, its F&B `T_F + T_B + T_W`.
    """
    p = stages
    tables = {
        "1f1b": (lambda f, b, w: (p - 1) * (f + b + w), p, 1),
        "zero-bubble": (lambda f, b, w: (p - 1) * (f + b - w), p, 1),
        "zb-v": (lambda f, b, w: 0.0, p, 1),
        "dualpipe": (lambda f, b, w: (p / 2 - 1) * ((f + b + w) + (b + w) - 3 * w), p + 1, 2),
        # Of as many pipeline stages, on half the devices, whose chunks are the README's stages.
        "dualpipe-v": (lambda f, b, w: (p - 1) * ((f + b + w) / 2 + (b + w) / 2 - 3 * w / 2), p + 1 / 2, 1),
        "zero-bubble-h2": (lambda f, b, w: (p - 1) * (f + b - 2 * w), 2 * p - 1, 1),
    }
    for name, (bubble, activations, parameters) in tables.items():
        schedule = named(name)
        if not admits(schedule, stages, micro_batches):
            continue
        for parts in ((1.0, 1.0, 1.0),) if is_staggered(schedule) else ((1.0, 1.0, 1.0), (1.0, 1.0, 0.5)):
            expected = micro_batches * sum(parts) + bubble(*parts)
            if is_staggered(schedule) and micro_batches < 2 * stages - 1:
                continue
            assert priced(schedule, stages, micro_batches, parts) == pytest.approx(expected), name
            found = taken(schedule, stages, micro_batches, parts, staggered=is_staggered(schedule))
            assert found == pytest.approx(expected), name
        held = max(sum(row) / len(row) for row in fullest_moments(schedule, 1, stages, micro_batches))
        assert held == min(activations, micro_batches), name
        assert copies_of(schedule) == parameters, name
