"""What errors of strangers say of ranges, of one's own runs, and of plans that differ."""

from itertools import combinations

import numpy
import pytest
from attrs import evolve

from benchmarks.fidelity.spread import (
    COVERED,
    OWN_RUNS,
    REACH,
    TRUSTED,
    Strangers,
    apart,
    spread,
    spreads,
    student,
    without_calibration,
)
from nest.catalogue import time_spread

RANDOM = numpy.random.default_rng(2)


def drawn(between: float, within: float, generation: str, clusters: int = 60, each: int = 30) -> Strangers:
    """Runs on clusters whose levels and runs are spread so, each cluster a source of its own."""
    levels = numpy.repeat(RANDOM.normal(0, between, clusters), each)
    names = [f"{generation} {index // each}" for index in range(clusters * each)]
    return Strangers(
        levels + RANDOM.normal(0, within, len(names)), names, names, [generation] * len(names), [False] * len(names)
    )


def together(*parts: Strangers) -> Strangers:
    names = ("sources", "clusters", "generations", "experts")
    rest = ([each for part in parts for each in getattr(part, name)] for name in names)
    return Strangers(numpy.concatenate([part.off for part in parts]), *rest)


@pytest.mark.longer
def test_spreads_are_those_that_runs_were_drawn_with() -> None:
    both = together(drawn(0.1, 0.05, "old"), drawn(0.2, 0.1, "new"))
    found = spreads(both, evolve(both, off=both.off + 0.3), (0.1, 1, 1.0))
    for name, (between, within) in {"old": (0.1, 0.05), "new": (0.2, 0.1)}.items():
        assert found.known.generations[name].between == pytest.approx(between, rel=0.25)
        assert found.known.generations[name].within == pytest.approx(within, rel=0.1)
    assert found.covered == pytest.approx(COVERED, abs=0.03)
    assert found.covered_alike == pytest.approx(found.covered)  # All sources have as many runs.
    assert found.bare.median == pytest.approx(numpy.exp(0.3), rel=0.03)
    for own in found.own.values():
        assert own.covered == pytest.approx(COVERED, abs=0.04)
    assert found.own[0].mean == pytest.approx(numpy.abs(numpy.expm1(-both.off)).mean())
    assert found.own[3].mean < found.own[1].mean < found.own[0].mean / 1.3
    assert set(found.own[1].sources) == set(found.own[0].sources) == set(both.sources)


def test_few_sources_have_the_range_of_students_t() -> None:
    # Quantiles 0.9 of Student's t: 1.4759, 1.3722 and 1.3304 for 5, 10 and 18 degrees of freedom; 1.2816 is normal.
    assert [student(each) * 1.2816 for each in (5, 10, 18)] == pytest.approx([1.4759, 1.3722, 1.3304], abs=1e-3)


def test_a_large_source_does_not_outvote_many_small_ones() -> None:
    """A source of 400 runs counts as 20 of one run each."""
    names = [f"small {index}" for index in range(40)]
    small = Strangers(numpy.full(40, 0.2), names, names, ["one"] * 40, [False] * 40)
    large = Strangers(numpy.full(400, 0.01), ["large"] * 400, ["large"] * 400, ["one"] * 400, [False] * 400)
    assert spread(together(small, large), 0.1).stranger.spread * REACH == pytest.approx(0.2, rel=0.01)


@pytest.mark.longer
def test_a_source_says_nothing_of_its_own_range() -> None:
    """However wild a source is, its range is that of the others."""
    calm = drawn(0.05, 0.05, "one", clusters=20)
    wild = Strangers(numpy.full(50, 3.0), ["wild"] * 50, ["wild"] * 50, ["one"] * 50, [False] * 50)
    both = together(calm, wild)
    found = spreads(both, both, (0.1, 1, 1.0))
    assert found.covered == pytest.approx(0.8 * 600 / 650, abs=0.1)


def test_devices_without_a_calibration_are_expected_below_the_roofs() -> None:
    off = numpy.full(5, numpy.log(time_spread(calibrated=False).median))
    own = without_calibration(Strangers(off, ["one"] * 5, ["here"] * 5, [""] * 5, [False] * 5))
    assert {count: (each.mean, each.covered) for count, each in own.items()} == {
        count: (pytest.approx(0, abs=1e-9), 1.0) for count in OWN_RUNS
    }


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
