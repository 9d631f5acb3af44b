"""What errors of strangers say of ranges, of one's own runs, and of plans that differ."""

from itertools import combinations

import numpy
import pytest
from attrs import evolve

from benchmarks.fidelity import own_runs
from benchmarks.fidelity.own_runs import OWN_RUNS, with_own_runs, without_calibration
from benchmarks.fidelity.spread import (
    COVERED,
    REACH,
    TRUSTED,
    Spreads,
    Strangers,
    apart,
    known_without,
    spread,
    spreads,
    student,
)
from nest.catalogue import time_spread
from nest_calibrate.likeness import USUAL, Shape

RANDOM = numpy.random.default_rng(2)


def drawn(between: float, within: float, generation: str, clusters: int = 60, each: int = 30) -> Strangers:
    """Runs on clusters whose levels and runs are spread so, each cluster a source of its own."""
    levels = numpy.repeat(RANDOM.normal(0, between, clusters), each)
    names = [f"{generation} {index // each}" for index in range(clusters * each)]
    return alike(levels + RANDOM.normal(0, within, len(names)), names, names, [generation] * len(names))


def alike(off: numpy.ndarray, sources: list[str], clusters: list[str], generations: list[str]) -> Strangers:
    """Runs of one plan on devices of a generation."""
    count = len(off)
    return Strangers(off, sources, clusters, generations, [False] * count, [Shape((1.0,), (0.0,))] * count)


def found_in(runs: Strangers, bare: Strangers) -> Spreads:
    return spreads(runs, bare, (0.1, 1, 1.0), known_without(runs, 0.1))


def together(*parts: Strangers) -> Strangers:
    names = ("sources", "clusters", "generations", "experts", "shapes")
    rest = ([each for part in parts for each in getattr(part, name)] for name in names)
    return Strangers(numpy.concatenate([part.off for part in parts]), *rest)


@pytest.mark.longer
def test_spreads_are_those_that_runs_were_drawn_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_runs, "LIKENESSES", (USUAL,))
    monkeypatch.setattr(own_runs, "DRAWS", 5)
    both = together(drawn(0.1, 0.05, "old"), drawn(0.2, 0.1, "new"))
    others = known_without(both, 0.1)
    found = spreads(both, evolve(both, off=both.off + 0.3), (0.1, 1, 1.0), others)
    own = with_own_runs(both, others)
    for name, (between, within) in {"old": (0.1, 0.05), "new": (0.2, 0.1)}.items():
        assert found.known.generations[name].between == pytest.approx(between, rel=0.25)
        assert found.known.generations[name].within == pytest.approx(within, rel=0.1)
    assert found.covered == pytest.approx(COVERED, abs=0.03)
    assert found.covered_alike == pytest.approx(found.covered)  # All sources have as many runs.
    assert found.bare.median == pytest.approx(numpy.exp(0.3), rel=0.03)
    for each in (*own.cluster.values(), *own.plan.values()):
        assert each.covered == pytest.approx(COVERED, abs=0.08)  # Weights of Student's t take normal runs for nearer.
    for by in (own.cluster, own.plan):
        assert by[0].mean == pytest.approx(numpy.abs(numpy.expm1(-both.off)).mean())
        assert by[3].mean < by[1].mean < by[0].mean / 1.3
        assert set(by[1].sources) == set(by[0].sources) == set(both.sources)


def test_few_sources_have_the_range_of_students_t() -> None:
    # Quantiles 0.9 of Student's t: 1.4759, 1.3722 and 1.3304 for 5, 10 and 18 degrees of freedom; 1.2816 is normal.
    assert [student(each) * 1.2816 for each in (5, 10, 18)] == pytest.approx([1.4759, 1.3722, 1.3304], abs=1e-3)


def test_a_large_source_does_not_outvote_many_small_ones() -> None:
    """A source of 400 runs counts as 20 of one run each."""
    names = [f"small {index}" for index in range(40)]
    small = alike(numpy.full(40, 0.2), names, names, ["one"] * 40)
    large = alike(numpy.full(400, 0.01), ["large"] * 400, ["large"] * 400, ["one"] * 400)
    assert spread(together(small, large), 0.1).stranger.spread * REACH == pytest.approx(0.2, rel=0.01)


@pytest.mark.longer
def test_a_source_says_nothing_of_its_own_range() -> None:
    """However wild a source is, its range is that of the others."""
    calm = drawn(0.05, 0.05, "one", clusters=20)
    wild = alike(numpy.full(50, 3.0), ["wild"] * 50, ["wild"] * 50, ["one"] * 50)
    both = together(calm, wild)
    found = found_in(both, both)
    assert found.covered == pytest.approx(0.8 * 600 / 650, abs=0.1)


def test_devices_without_a_calibration_are_expected_below_the_roofs() -> None:
    off = numpy.full(5, numpy.log(time_spread(calibrated=False).median))
    own = without_calibration(alike(off, ["one"] * 5, ["here"] * 5, [""] * 5))
    for by in (own.cluster, own.plan):
        assert {count: (each.mean, each.covered) for count, each in by.items()} == {
            count: (pytest.approx(0, abs=1e-9), 1.0) for count in OWN_RUNS
        }


@pytest.mark.longer
def test_each_source_is_predicted_by_the_likeness_that_others_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of two kinds of plan, of which the first are as slow as each other, and the second as fast."""
    monkeypatch.setattr(own_runs, "DRAWS", 5)
    kinds = [Shape((1.0, 0.0), (0.0,)), Shape((0.0, 1.0), (3.0,))] * 4
    names = [name for name in ("one", "two", "three") for _ in kinds]
    off = numpy.array([0.2, -0.2] * 12)
    runs = evolve(alike(off, names, names, ["old"] * len(names)), shapes=kinds * 3)
    own = with_own_runs(runs, known_without(runs, 0.1))
    assert own.plan[3].mean < 0.7 * own.cluster[3].mean
    assert set(own.likenesses) == set(names)
    assert {(each.alike, each.doubling) for each in own.likenesses.values()} == {(0.5, 0.1)}


def test_plans_are_told_apart_from_the_least_difference_that_can_be_trusted() -> None:
    tasks = [str(index // 20) for index in range(20 * 40)]
    true = RANDOM.normal(0, 0.1, len(tasks))
    measured, predicted = numpy.exp(true), numpy.exp(true + RANDOM.normal(0, 0.04, len(tasks)))
    least, pairs, ordered = apart(predicted, measured, tasks, ["one"] * len(tasks))
    assert ordered >= TRUSTED
    right = []
    for task in set(tasks):
        its = [index for index, each in enumerate(tasks) if each == task]
        for one, two in combinations(its, 2):
            first, second = sorted((one, two), key=lambda run: float(predicted[run]))
            if predicted[second] / predicted[first] - 1 >= least:
                right.append(measured[first] <= measured[second])
    assert (len(right), sum(right) / len(right)) == (pairs, pytest.approx(ordered))
    assert 0.01 < least < 0.2
