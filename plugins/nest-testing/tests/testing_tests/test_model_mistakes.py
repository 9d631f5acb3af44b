"""Mistakes of cost models, collective models, layer times and schedules are found by the checks for them."""

from collections.abc import Callable
from itertools import count
from math import inf, nan, prod
from typing import Any

import pytest
from attrs import evolve

from nest.errors import InputError
from nest.hooks.protocols import OperatorCost, Pass
from nest.hooks.registry import registry
from nest.testing import check

hours = count(1)


class Changed:
    """A built-in object, one method of which is replaced; the replacement is given the sound one first."""

    def __init__(self, kind: str, name: str, **methods: Callable[..., Any]) -> None:
        self.sound = getattr(registry(), kind)()[name]
        self.name = name
        self.kind = kind
        for method, replacement in methods.items():
            setattr(self, method, self.bound(getattr(self.sound, method), replacement))

    def bound(self, sound: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: replacement(sound, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sound, name)

    def failed(self) -> list[str]:
        return [finding.check for finding in check(self, self.kind) if not finding.passed]


def refusing(*arguments: Any) -> Any:
    raise InputError("no such device.")


COSTS: dict[str, tuple[Callable[..., Any], str]] = {
    "negative": (lambda sound, *a: evolve(sound(*a), transient=-1.0), "costs are finite and not negative"),
    "endless": (lambda sound, *a: evolve(sound(*a), backward=inf), "costs are finite and not negative"),
    "a number": (lambda sound, *a: 1.0, "costs are finite and not negative"),
    "free": (lambda sound, *a: OperatorCost(0.0, 0.0), "costs are finite and not negative"),
    "only known kinds": (lambda sound, operator, *a: {"matmul": 1}[operator.kind], "costs are finite and not negative"),
    "by the hour": (lambda sound, *a: evolve(sound(*a), update=next(hours)), "it says the same every time"),
    "by name": (
        lambda sound, operator, *a: evolve(sound(operator, *a), update=len(operator.name)),
        "names of operators mean nothing",
    ),
    "refused": (refusing, "some device is priced"),
}


@pytest.mark.longer
@pytest.mark.parametrize("fault", COSTS)
def test_cost_models(fault: str) -> None:
    method, expected = COSTS[fault]
    assert expected in Changed("cost_models", "roofline", price=method).failed()


@pytest.mark.longer
def test_why_devices_are_refused_is_told() -> None:
    findings = check(Changed("cost_models", "roofline", price=refusing), "cost_models")
    assert any("every one was refused (no such device.)" in finding.told for finding in findings)


def for_one(sound: Callable[..., float], kind: str, size: float, shape: Any, levels: Any) -> float:
    return max(sound(kind, size, shape, levels), 1e-6)


COLLECTIVES: dict[str, tuple[dict[str, Callable[..., Any]], str]] = {
    "not a number": ({"time": lambda sound, *a: nan}, "times are finite and not negative"),
    "negative": ({"time": lambda sound, *a: -sound(*a)}, "times are finite and not negative"),
    "by the hour": ({"time": lambda sound, *a: sound(*a) + next(hours)}, "it says the same every time"),
    "shrinking": (
        {"time": lambda sound, kind, size, *a: sound(kind, 1e6 / (1 + size), *a)},
        "more bytes never take less time",
    ),
    "charging one": ({"time": for_one}, "one member costs nothing"),
    "charging for nothing": ({"time": for_one}, "no bytes cost nothing"),
    "only what ZeRO shards": (
        {"time": lambda sound, kind, *a: sound(kind, *a) * (kind != "all_reduce")},
        "bytes among several members take time",
    ),
    "faster than all links together": (
        {"time": lambda sound, *a: sound(*a) / 1000},
        "no more is sent than the links carry",
    ),
    "two minds": ({"times": lambda sound, *a: 2 * sound(*a)}, "`times` agrees with `time`"),
    "one for all": ({"times": lambda sound, *a: 1.0}, "`times` agrees with `time`"),
    "twice the least": ({"per_byte": lambda sound, *a: 2 * sound(*a)}, "no bytes take less than `per_byte` says"),
}


@pytest.mark.parametrize("fault", COLLECTIVES)
def test_collective_models(fault: str) -> None:
    methods, expected = COLLECTIVES[fault]
    assert expected in Changed("collective_models", "alpha-beta", **methods).failed()


class Counting:
    """Every byte goes to every other member at 1 GB/s; the methods hear of the members as `told`."""

    name = "counting"

    def __init__(
        self, told: Callable[[int | None], int | None], told_of_many: Callable[[int | None], int | None]
    ) -> None:
        self.told, self.told_of_many = told, told_of_many

    def time(self, kind: str, size: Any, shape: Any, levels: Any, members: int | None = None) -> Any:
        return ((self.told(members) or prod(shape)) - 1) * size / 1e9

    def times(self, kind: str, size: Any, shape: Any, levels: Any, members: int | None = None) -> Any:
        return ((self.told_of_many(members) or prod(shape)) - 1) * size / 1e9


COUNTS: dict[str, tuple[Counting, str]] = {
    "one left out": (
        Counting(lambda told: told or 2, lambda told: told),
        "left out, the members are those of the shape",
    ),
    "of many it is not told": (Counting(lambda told: told, lambda told: None), "`times` agrees with `time`"),
}


@pytest.mark.longer
@pytest.mark.parametrize("fault", COUNTS)
def test_collective_models_that_count(fault: str) -> None:
    model, expected = COUNTS[fault]
    assert expected in [each.check for each in check(model, "collective_models") if not each.passed]
    sound = Counting(lambda told: told, lambda told: told)
    assert all(each.passed for each in check(sound, "collective_models"))


LAYER_TIMES: dict[str, tuple[Callable[..., Any], str]] = {
    "not a number": (lambda sound, *a: nan, "seconds are finite and not negative"),
    "stumbles over nothing": (lambda sound, durations, *a: durations[0], "seconds are finite and not negative"),
    "by the hour": (lambda sound, *a: sound(*a) + next(hours), "it says the same every time"),
    "everything at once": (
        lambda sound, durations, *a: max(durations, default=0.0),
        "a layer takes as long as what must follow one another",
    ),
}


@pytest.mark.parametrize("fault", LAYER_TIMES)
def test_layer_times(fault: str) -> None:
    method, expected = LAYER_TIMES[fault]
    assert expected in Changed("layer_times", "sequential", seconds=method).failed()


SCHEDULES: dict[str, tuple[dict[str, Callable[..., Any]], str]] = {
    "not a number": ({"weights": lambda sound, *a: (nan, 1.0)}, "weights are finite, and sums of them not negative"),
    "negative": ({"weights": lambda sound, m, s: (m + 1.0, -1.0)}, "weights are finite, and sums of them not negative"),
    "three": ({"weights": lambda sound, *a: (1.0, 1.0, 1.0)}, "weights are finite, and sums of them not negative"),
    "by the hour": ({"weights": lambda sound, *a: (1e3 + next(hours), 1.0)}, "it says the same every time"),
    "too fast": ({"weights": lambda sound, m, s: (m / s, 0.0)}, "a batch takes no less than its slowest stage"),
    "slow alone": ({"weights": lambda sound, m, s: (m, 1.0)}, "one stage takes its micro-batches one by one"),
    "nothing in flight": ({"in_flight": lambda sound, *a: 0}, "from 1 to all micro-batches are in flight"),
    "a word": ({"in_flight": lambda sound, *a: "all"}, "from 1 to all micro-batches are in flight"),
    "more than there are": ({"in_flight": lambda sound, i, s, m: s}, "from 1 to all micro-batches are in flight"),
}


AGREE, BOUND = "weights and counts are those of its order", "unequal stages keep to the bound"

CONTRADICTIONS: dict[str, tuple[str, dict[str, Callable[..., Any]], str]] = {
    "no time to fill": ("1f1b", {"weights": lambda sound, m, s: (float(m), 0.0)}, AGREE),
    "half of it": ("gpipe", {"weights": lambda sound, m, s: (m - 0.5, 0.5)}, AGREE),
    "longer than it takes": ("1f1b", {"weights": lambda sound, m, s: (m - 1.0, 2.0 - 1 / s)}, AGREE),
    "zero bubble in name only": ("1f1b", {"weights": lambda sound, m, s: (m - 1 / 3, 1 / 3)}, AGREE),
    "right where stages are equal": ("1f1b", {"weights": lambda sound, m, s: (0.0, (m + s - 1) / s)}, BOUND),
    "of another order": ("gpipe", {"order": lambda sound, i, s, m: one_at_a_time(m)}, AGREE),
    "beyond the bound": ("1f1b", {"order": lambda sound, i, s, m: one_at_a_time(m)}, BOUND),
    "one fewer in flight": ("1f1b", {"in_flight": lambda sound, i, s, m: max(sound(i, s, m) - 1, 1)}, AGREE),
    "one more in flight": ("1f1b", {"in_flight": lambda sound, i, s, m: min(sound(i, s, m) + 1, m)}, AGREE),
    "as many everywhere": ("gpipe", {"in_flight": lambda sound, i, s, m: min(m, s)}, AGREE),
    "micro-batches for chunks": ("interleaved", {"in_flight": lambda sound, i, s, m: min(m, s - i + 1)}, AGREE),
    "without its chunks": ("interleaved", {"weights": lambda sound, m, s: (m - 1.0, 1.0)}, AGREE),
    "more than all its chunks hold": (
        "interleaved",
        {"least_held": lambda sound, s, m: tuple(each + 1 for each in sound(s, m))},
        "it says what all chunks hold as in_flight has it",
    ),
}


def one_at_a_time(micro_batches: int) -> list[Pass]:
    """A micro-batch forward and backward, then the next."""
    return [Pass(kind, index) for index in range(micro_batches) for kind in ("forward", "backward")]


@pytest.mark.longer
@pytest.mark.parametrize("contradiction", CONTRADICTIONS)
def test_schedules_whose_weights_or_counts_contradict_their_order(contradiction: str) -> None:
    name, methods, expected = CONTRADICTIONS[contradiction]
    assert expected in Changed("schedules", name, **methods).failed()


@pytest.mark.parametrize("fault", SCHEDULES)
def test_schedules(fault: str) -> None:
    methods, expected = SCHEDULES[fault]
    assert expected in Changed("schedules", "1f1b", **methods).failed()


class Chunked:
    """One forward, one backward in chunks: the formulas of PROBLEM.md section 4, `interleaved`."""

    name = "chunked"

    def __init__(self, chunks: int = 2, slip: float = 0.0) -> None:
        self.chunks = chunks
        self.slip = slip

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        return micro_batches - (1 + self.slip * (self.chunks - 2)) / self.chunks, 1 / self.chunks

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> float:
        chunks = min(micro_batches * self.chunks, 2 * (stages - stage) + (self.chunks - 1) * stages + 1)
        return chunks / self.chunks

    def with_chunks(self, chunks: int) -> Any:
        return Chunked(chunks, self.slip)


@pytest.mark.longer
def test_schedules_of_several_chunks() -> None:
    def failed(schedule: Any) -> dict[str, str]:
        return {finding.check: finding.told for finding in check(schedule, "schedules") if not finding.passed}

    assert failed(Chunked()) == {}
    slipping = failed(Chunked(slip=1.0))
    assert list(slipping) == ["a batch takes no less than its slowest stage"]
    assert all(told.startswith("4 chunks") for told in slipping.values())
    stubborn = Chunked()
    stubborn.with_chunks = lambda chunks: stubborn  # type: ignore[method-assign]
    assert list(failed(stubborn)) == ["it makes others of several chunks"]
    stubborn.with_chunks = lambda chunks: None  # type: ignore[method-assign]
    assert list(failed(stubborn)) == ["it makes others of several chunks"]
