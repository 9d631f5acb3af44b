"""What errors of strangers say of ranges, of one's own runs, and of plans that differ."""

import tomllib
from itertools import combinations

import numpy
import pytest

from benchmarks.fidelity.spread import COVERED, TRUSTED, Strangers, apart, spread_text, spreads

RANDOM = numpy.random.default_rng(2)


def drawn(between: float, within: float, generation: str, clusters: int = 60, each: int = 30) -> Strangers:
    """Runs on clusters whose levels and runs are spread so, each cluster a source of its own."""
    levels = numpy.repeat(RANDOM.normal(0, between, clusters), each)
    names = [f"{generation} {index // each}" for index in range(clusters * each)]
    return Strangers(levels + RANDOM.normal(0, within, len(names)), names, names, [generation] * len(names))


@pytest.mark.longer
def test_spreads_are_those_that_runs_were_drawn_with() -> None:
    old, new = drawn(0.1, 0.05, "old"), drawn(0.2, 0.1, "new")
    both = Strangers(
        numpy.concatenate([old.off, new.off]),
        *((*getattr(old, name), *getattr(new, name)) for name in ("sources", "clusters", "generations")),
    )
    found = spreads(both, (0.1, 1, 1.0))
    for name, (between, within) in {"old": (0.1, 0.05), "new": (0.2, 0.1)}.items():
        assert found.found[name].between == pytest.approx(between, rel=0.25)
        assert found.found[name].within == pytest.approx(within, rel=0.1)
    assert found.covered == pytest.approx(COVERED, abs=0.03)
    assert found.own is not None
    assert found.own.covered == pytest.approx(COVERED, abs=0.04)
    assert found.own.mean < numpy.abs(numpy.expm1(-both.off)).mean() / 1.5
    assert found.own.half_width < found.half_width / 1.5
    # Levels that are known leave what is within clusters: of a normal variable, sqrt(2 / pi) standard deviations.
    assert found.own.least == pytest.approx((2 / numpy.pi) ** 0.5 * (0.05 + 0.1) / 2, rel=0.05)
    assert found.own.least < found.own.mean


def test_a_source_says_nothing_of_its_own_range() -> None:
    """However wild a source is, its range is that of the others."""
    calm = drawn(0.05, 0.05, "one", clusters=20)
    wild = Strangers(numpy.full(50, 3.0), ["wild"] * 50, ["wild"] * 50, ["one"] * 50)
    both = Strangers(
        numpy.concatenate([calm.off, wild.off]),
        *((*getattr(calm, name), *getattr(wild, name)) for name in ("sources", "clusters", "generations")),
    )
    found = spreads(both, (0.1, 1, 1.0))
    assert found.covered == pytest.approx(0.8 * 600 / 650, abs=0.1)


def test_plans_are_told_apart_from_the_least_difference_that_can_be_trusted() -> None:
    tasks = [str(index // 20) for index in range(20 * 40)]
    true = RANDOM.normal(0, 0.1, len(tasks))
    measured, predicted = numpy.exp(true), numpy.exp(true + RANDOM.normal(0, 0.04, len(tasks)))
    least, pairs, ordered = apart(predicted, measured, tasks)
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


def test_nothing_is_told_apart_where_there_is_nothing_to_compare() -> None:
    ones = numpy.ones(3)
    assert apart(ones, ones, ["a", "b", "c"])[:2] == (1.0, 0)


def test_the_file_of_the_catalogue_holds_the_spreads() -> None:
    found = spreads(drawn(0.1, 0.05, "old", clusters=5), (0.123, 1, 1.0))
    read = tomllib.loads(spread_text(found, "here"))
    its = found.found["old"]
    told = {"between": round(its.between, 2), "within": round(its.within, 2)}
    assert read == {"apart": 0.13, "sources": ["here"], "generations": {"old": told}}
