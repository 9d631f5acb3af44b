"""The least makespan: certificates, properties, and every order tried on small instances."""

from itertools import permutations, product
from math import fsum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest_cpsat import makespan as module
from nest_cpsat.makespan import Makespan, makespan

Jobs = tuple[list[float], list[str], list[tuple[int, int]]]


@st.composite
def jobs(draw: st.DrawFn, most: int = 12, engines: str = "abc") -> Jobs:
    durations = draw(st.lists(st.just(0.0) | st.floats(1e-6, 1.0), min_size=1, max_size=most))
    count = len(durations)
    used = draw(st.lists(st.sampled_from(engines), min_size=count, max_size=count))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    return durations, used, draw(st.lists(st.sampled_from(pairs), max_size=2 * count, unique=True)) if pairs else []


def critical_path(durations: list[float], precedence: list[tuple[int, int]]) -> float:
    ends = list(durations)
    for task in range(len(durations)):
        ends[task] = max([ends[a] for a, b in precedence if b == task], default=0.0) + durations[task]
    return max(ends)


def by_order(durations: list[float], engines: list[str], precedence: list[tuple[int, int]]) -> float:
    """The least over every order of the tasks, each started as early as the order lets it."""
    best = fsum(durations)
    count = len(durations)
    for order in permutations(range(count)):
        place = {task: index for index, task in enumerate(order)}
        if any(place[a] > place[b] for a, b in precedence):
            continue
        free: dict[str, float] = {}
        ends: dict[int, float] = {}
        for task in order:
            waited = max((ends[a] for a, b in precedence if b == task), default=0.0)
            if durations[task] == 0:
                ends[task] = waited
                continue
            ends[task] = free[engines[task]] = max(waited, free.get(engines[task], 0.0)) + durations[task]
        best = min(best, max(ends.values()))
    return best


@pytest.mark.longer
@given(jobs(most=6))
@settings(max_examples=24)
def test_as_good_as_every_order(given: Jobs) -> None:
    found = makespan(*given)
    assert found.proved
    assert found.seconds == pytest.approx(by_order(*given), rel=1e-7)


@given(jobs())
def test_between_bounds_and_the_sum(given: Jobs) -> None:
    durations, engines, precedence = given
    found = makespan(*given)
    assert found.seconds <= fsum(durations)
    assert found.seconds >= critical_path(durations, precedence) * (1 - 1e-12)
    for engine in set(engines):
        own = [length for length, used in zip(durations, engines, strict=True) if used == engine]
        assert found.seconds >= fsum(own) * (1 - 1e-12)
    assert found.bound <= found.seconds


@given(jobs(most=12))
def test_without_effort_an_upper_bound(given: Jobs) -> None:
    quick, best = makespan(*given, effort=0.0), makespan(*given)
    assert quick.seconds >= best.seconds * (1 - 1e-12)
    assert quick.bound <= best.bound * (1 + 1e-12)
    assert quick.seconds <= fsum(given[0])
    if quick.proved:
        assert quick.seconds == pytest.approx(best.seconds, rel=1e-7)


def _hard() -> Jobs:
    """An instance of which list schedules are not the least."""
    for seed in product([1.0, 2.0, 3.0, 5.0], repeat=5):
        problem: Jobs = (list(seed), ["a", "b", "a", "b", "a"], [(0, 1), (2, 3), (3, 4)])
        if makespan(*problem, effort=0.0).seconds > by_order(*problem):
            return problem
    raise AssertionError("no such instance")


@pytest.mark.longer
def test_finds_what_list_schedules_miss() -> None:
    problem = _hard()
    quick, best = makespan(*problem, effort=0.0), makespan(*problem)
    assert not quick.proved
    assert best.proved
    assert best.seconds == pytest.approx(by_order(*problem), rel=1e-7)
    assert best.seconds < quick.seconds


@pytest.mark.longer
def test_where_bounds_meet_cp_sat_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(module, "_query", refuse)
    one_engine = ([1.0, 2.0, 3.0], ["a"] * 3, [(0, 2)])
    chain = ([1.0, 2.0, 3.0], ["a", "b", "a"], [(0, 1), (1, 2)])
    assert makespan(*one_engine) == makespan(*chain) == Makespan(6.0, 6.0, True)
    with pytest.raises(AssertionError, match="asked"):
        makespan(*_hard())


def test_a_hit_limit_is_said_and_never_below_the_least() -> None:
    problem = _hard()
    found = makespan(*problem, effort=1e-12)
    assert found.seconds >= by_order(*problem) * (1 - 1e-12)
    assert found.bound <= by_order(*problem) * (1 + 1e-12)
    assert found.proved == (found.seconds == pytest.approx(by_order(*problem), rel=1e-7))


def test_what_takes_no_time_only_passes_on() -> None:
    durations, engines = [3.0, 0.0, 2.0, 4.0], ["a", "b", "a", "b"]
    # The instant waits for the first task and holds up the third, but engine b is busy meanwhile.
    assert makespan(durations, engines, [(0, 1), (1, 2)]).seconds == 5.0
    assert makespan([], [], []).seconds == makespan([0.0, 0.0], ["a", "b"], [(0, 1)]).seconds == 0.0


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (([1.0], ["a", "b"], []), "1 durations, but 2 engines"),
        (([-1.0], ["a"], []), "not negative"),
        (([float("nan")], ["a"], []), "finite"),
        (([1.0, 1.0], ["a", "b"], [(0, 1), (1, 0)]), "cycle"),
    ],
)
def test_what_is_no_problem_is_refused(problem: Jobs, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        makespan(*problem)
