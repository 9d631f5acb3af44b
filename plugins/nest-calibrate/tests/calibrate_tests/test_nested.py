"""Nested leave-one-source-out: rules by hand, fits beside those of calibration, and no source that judges itself."""

import json
from pathlib import Path

import numpy
import pytest
from attrs import evolve

from benchmarks.fidelity.__main__ import PUBLISHED, main
from benchmarks.fidelity.joint import joint
from benchmarks.fidelity.nested import errors_of, kept, nested, standard_error, text
from benchmarks.fidelity.runs import priced, read_runs
from nest.costs.roofline import Roofline
from nest.hooks.registry import registry
from nest.instance import Array
from nest_calibrate.devices import fit, predicted
from nest_calibrate.generations import MeasuredRun, evidence


def silent(what: str) -> None:
    """Tell nobody."""


@pytest.fixture(scope="module")
def runs() -> list[MeasuredRun]:
    """The published runs on Hopper."""
    taken, _ = priced(read_runs([PUBLISHED]), registry(), silent)
    return [each for each in taken if each.device.generation == "hopper"]


def of(*errors: float) -> Array:
    return numpy.array(errors)


def test_a_term_stays_where_it_helps_those_it_is_about_and_hurts_no_other() -> None:
    with_ = {"long context": of(0.1, 0.1), "other": of(0.05, 0.07)}
    without = {"long context": of(0.4, 0.4), "other": of(0.05, 0.07)}
    assert kept(with_, without, ["long context"])
    assert not kept(without, with_, ["long context"])
    assert not kept(with_, without, [])  # Nobody else can tell.
    hurt = {**with_, "other": of(0.15, 0.17)}  # By 10 %, where the standard error is 0.7 %.
    assert not kept(hurt, without, ["long context"])
    assert kept(hurt, without, ["long context", "other"])  # The mean of both is still lower.


def test_the_standard_error_of_few_runs_is_that_of_usual_ones() -> None:
    # Four runs of variance 0.01 beside four of variance 0.04 that count as believed: (3 * 0.01 + 4 * 0.04) / 7 / 4.
    own = of(0.1, 0.3, 0.1, 0.3) * (0.75**0.5)
    assert own.var(ddof=1) == pytest.approx(0.01)
    assert standard_error(own, 0.2) == pytest.approx((0.19 / 28) ** 0.5)
    assert standard_error(of(0.3), 0.2) == pytest.approx(0.2)
    assert standard_error(of(0.3, 0.3), 0.2) > 0.1  # Two that agree by chance.
    assert errors_of(of(numpy.log(1.5), numpy.log(0.8))) == pytest.approx([0.5, 0.2])


@pytest.mark.longer
def test_the_fast_fit_is_that_of_calibration(runs: list[MeasuredRun]) -> None:
    costs = Roofline()
    fast = joint(runs, costs).fitted()
    seen = evidence(runs, costs)
    (values,) = fit([seen], [numpy.ones(len(runs), dtype=bool)])
    assert numpy.exp(fast.off) == pytest.approx(predicted(seen, values) / seen.seconds, rel=0.01)


@pytest.mark.longer
def test_what_is_held_out_has_no_say(runs: list[MeasuredRun]) -> None:
    """Whatever a source measured, it is predicted alike."""
    held = numpy.array([index < 2 for index in range(len(runs))])

    def changed(run: MeasuredRun) -> MeasuredRun:
        figures = run.run.measured
        return evolve(run, run=evolve(run.run, measured=evolve(figures, batch_time=3.0 * (figures.batch_time or 0.0))))

    other = [changed(each) if its else each for each, its in zip(runs, held, strict=True)]
    fits = [joint(each, Roofline()).fitted() for each in (runs, other)]
    found = [fit.without(held)[1][held] for fit in fits]
    assert found[0] - found[1] == pytest.approx(numpy.log(3.0) * numpy.ones(2), abs=0.02)


@pytest.mark.longer
def test_every_source_has_a_row_and_terms_are_told(runs: list[MeasuredRun]) -> None:
    parted = [evolve(run, run=evolve(run.run, group=f"source {index % 2}")) for index, run in enumerate(runs)]
    found = nested(parted, numpy.ones(len(parted)), Roofline(), silent, ["attention kernels"])
    assert [row.source for row in found.rows] == ["source 0", "source 1"]
    assert sum(row.runs for row in found.rows) == len(runs)
    assert found.kinds["all"][1] == pytest.approx(numpy.mean([row.nested for row in found.rows]))
    printed = "\n".join(text(found))
    assert "source 1" in printed
    assert "no attention kernels" in printed


@pytest.mark.slow
def test_the_command_writes_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(PUBLISHED), "--nested", "--output", str(tmp_path)]) == 0
    assert "sources alike" in capsys.readouterr().out
    assert json.loads((tmp_path / "nested.json").read_text())["rows"]
