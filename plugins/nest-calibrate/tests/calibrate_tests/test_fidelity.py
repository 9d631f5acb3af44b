"""The fidelity benchmark: its statistics by hand, its folds, its baseline, and the command on the published table."""

import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nest
from benchmarks.fidelity.__main__ import PUBLISHED, main
from benchmarks.fidelity.ablation import NOTHING_OFF, ablation
from benchmarks.fidelity.baseline import constant_share, ideal_seconds
from benchmarks.fidelity.figures import memory_rows, peaks_of
from benchmarks.fidelity.predictions import Table, table
from benchmarks.fidelity.ranking import agreement, orders, task_sets
from benchmarks.fidelity.runs import priced, read_runs
from benchmarks.fidelity.statistics import best_share, errors, rank_correlation, ranks, regret, weighted_quantile
from benchmarks.fidelity.terms import TERMS
from nest.costs.roofline import Roofline
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.spec.device import ranges
from nest_calibrate.devices import parts
from nest_calibrate.generations import MeasuredRun

SOME = st.lists(st.floats(0.1, 10), min_size=2, max_size=8, unique=True)


def silent(what: str) -> None:
    """Tell nobody."""


def line(**changes: Any) -> dict[str, Any]:
    """A run of a tiny model on two devices."""
    problem = {
        "nest": 1,
        "model": {"transformer": {"layers": 2, "hidden": 64, "ffn": 256, "heads": 4, "vocab": 1000}},
        "training": {"global_batch": 8, "sequence_length": 128},
        "cluster": {"device": "a100-sxm-80g", "levels": [{"fanout": 2, "bandwidth": "300 GB/s"}]},
        "fixed": {"tp": 2},
    }
    told = {"id": "one", "group": "us", "family": "mine", "problem": problem, "measured": {"batch_time": 1.0}}
    return told | changes


def written(folder: Path, *lines: dict[str, Any]) -> Path:
    path = folder / "runs.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def taken(path: Path) -> tuple[list[MeasuredRun], Counter[str]]:
    """The runs of a file that can be priced, and why others cannot."""
    return priced(read_runs([path]), registry(), silent)


@pytest.fixture(scope="module")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Predictions of the published runs on H100 in bf16: two groups, few families."""
    lines = [json.loads(text) for text in PUBLISHED.read_text().splitlines()]
    some = [each for each in lines if each["family"].endswith("h100-sxm|bf16")]
    runs, refused = taken(written(tmp_path_factory.mktemp("hopper"), *some))
    assert not refused
    return table(runs, Roofline(), silent)


def test_equal_values_share_a_rank() -> None:
    assert ranks(numpy.array([5.0, 1.0, 5.0, 7.0])).tolist() == [2.5, 1.0, 2.5, 4.0]


def test_the_rank_correlation_of_small_examples_is_that_of_paper_and_pencil() -> None:
    def of(one: list[float], other: list[float]) -> float | None:
        return rank_correlation(numpy.array(one), numpy.array(other))

    assert of([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert of([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    # Without ties 1 - 6 sum d^2 / (n (n^2 - 1)): here d is 1, -1, 1, -1.
    assert of([1, 2, 3, 4], [2, 1, 4, 3]) == pytest.approx(1 - 6 * 4 / (4 * 15))
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
    assert of([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert of([1, 1, 1], [1, 2, 3]) is None


@given(SOME, st.randoms(use_true_random=False))
def test_only_the_order_counts(values: list[float], random: Any) -> None:
    other = random.sample(values, len(values))
    found = rank_correlation(numpy.array(values), numpy.array(other))
    assert found is not None
    assert -1 - 1e-9 <= found <= 1 + 1e-9
    assert rank_correlation(numpy.log(values), numpy.array(other) * 3) == pytest.approx(found)
    assert rank_correlation(numpy.array(values), -numpy.array(other)) == pytest.approx(-found)


def test_regret_is_what_the_plan_predicted_best_takes_longer_than_the_best() -> None:
    assert regret(numpy.array([1.0, 2.0, 3.0]), numpy.array([11.0, 10.0, 20.0])) == pytest.approx(0.1)
    assert regret(numpy.array([2.0, 1.0]), numpy.array([9.0, 5.0])) == 0


def test_plans_that_took_about_as_long_have_no_order() -> None:
    # 1.00 and 1.04 are as good as equal; both others differ from each of them and from each other.
    assert orders(numpy.array([2.0, 1.0, 1.5, 9.0]), numpy.array([1.0, 1.04, 1.2, 3.0])) == [
        False,
        True,
        True,
        True,
        True,
    ]


def test_errors_are_of_what_was_predicted() -> None:
    found = errors(numpy.array([1.1, 0.8, numpy.nan, 1.0]), numpy.array([1.0, 1.0, 1.0, 1.0]))
    assert found is not None
    assert (found.count, found.bias) == (3, 1.0)
    assert found.mean == pytest.approx(0.1)
    assert found.median == pytest.approx(0.1)
    assert found.worst == pytest.approx(0.2)
    assert errors(numpy.array([numpy.nan]), numpy.array([1.0])) is None


@given(SOME, st.floats(0.05, 20))
def test_no_other_share_has_a_smaller_error(achieved: list[float], other: float) -> None:
    def error(share: float) -> float:
        return sum(abs(each / share - 1) for each in achieved)

    assert error(best_share(achieved)) <= error(other) * (1 + 1e-9)


@given(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=40), st.integers(2, 8))
def test_no_family_is_in_two_parts_and_parts_are_even(families: list[str], folds: int) -> None:
    part = parts(families, folds)
    assert len({(name, its) for name, its in zip(families, part.tolist(), strict=True)}) == len(set(families))
    sizes = Counter(dict(zip(families, part.tolist(), strict=True)).values())
    assert max(sizes.values()) - min(sizes[its] for its in range(min(folds, len(set(families))))) <= 1


@pytest.mark.longer
def test_every_run_is_held_out_once_with_all_of_its_family(hopper: Table) -> None:
    for generation in hopper.generations:
        families = numpy.array(generation.evidence.families)
        assert sum(fold.held.astype(int) for fold in generation.folds).tolist() == [1] * len(families)
        for fold in generation.folds:
            assert not set(families[fold.held]) & set(families[~fold.held])
    assert not numpy.isnan(hopper.validated).any()


def test_the_baseline_takes_the_share_of_other_families(tmp_path: Path) -> None:
    """Three runs of one plan: two of one family, which are predicted from the third, and that from them."""
    lines = [
        line(id="a", family="first", measured={"batch_time": 1.0}),
        line(id="b", family="first", measured={"batch_time": 2.0}),
        line(id="c", family="second", measured={"batch_time": 5.0}),
    ]
    runs, _ = taken(written(tmp_path, *lines))
    plan = nest.evaluate(lines[0]["problem"])
    assert plan.summary is not None
    assert plan.batch_time is not None
    assert ideal_seconds(runs[0]) == pytest.approx(plan.summary["model_flops_utilisation"] * plan.batch_time)
    # The best share for 1 s and 2 s is that of 1 s: an error of 0 and 1/2, against 0 and 1 with that of 2 s.
    assert constant_share(runs, [each["family"] for each in lines], 8).tolist() == pytest.approx([5.0, 5.0, 1.0])
    assert numpy.isnan(constant_share(runs, ["one"] * 3, 8)).all()


def test_peaks_above_the_upper_estimate_are_counted(tmp_path: Path) -> None:
    """Without a name, too; one measured peak is far above, one below, and one run has none."""
    figures = [{"batch_time": 1.0, "peak_memory": size} for size in (1e12, 1.0)]
    lines = [line(id="", measured=each) for each in (*figures, {"batch_time": 1.0})]
    runs, _ = taken(written(tmp_path, *lines))
    found = peaks_of(runs)
    own, total = memory_rows(found)
    assert (own.group, own.errors.count, own.above) == ("us", 2, 1)
    assert total.above == 1


def test_plans_for_one_task_are_compared_and_repeated_runs_averaged(tmp_path: Path) -> None:
    def run(name: str, batch: int, recompute: str) -> dict[str, Any]:
        problem = line()["problem"]
        training = {**problem["training"], "global_batch": batch}
        return line(id=name, problem={**problem, "training": training, "fixed": {"tp": 2, "recompute": recompute}})

    lines = [run("a", 8, "none"), run("b", 8, "full"), run("c", 8, "none"), run("d", 16, "none"), run("e", 16, "none")]
    sets = task_sets([line.measurement for line in read_runs([written(tmp_path, *lines)])])
    assert [each.runs for each in sets] == [((0, 2), (1,))]
    measured = numpy.array([1.0, 1.5, 3.0, 1.0, 1.0])
    found = agreement(sets, numpy.array([1.0, 2.0, 1.0, 1.0, 1.0]), measured)
    assert found is not None
    assert (found.sets, found.plans, found.correlation) == (1, 2, -1.0)
    assert found.regret == pytest.approx(1 / 3)
    assert found.close == 0
    assert (found.pairs, found.right) == (1, 0)
    assert agreement([], measured, measured) is None


def test_what_cannot_be_priced_is_counted_by_reason(tmp_path: Path) -> None:
    bad = [line(id=name, problem=line()["problem"] | {"fixed": {"ep": size}}) for name, size in (("b", 2), ("c", 4))]
    runs, refused = taken(written(tmp_path, line(), *bad))
    assert [each.run.id for each in runs] == ["one"]
    assert list(refused.values()) == [2]
    assert "fixed.ep" in next(iter(refused))


def test_a_file_without_runs_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"nest": 1, "measurement": "operator", "kind": "launch", "precision": "bf16", "seconds": 1e-5}\n')
    with pytest.raises(InputError, match="no runs"):
        read_runs([path])
    assert main([str(path)]) == 2
    assert "no runs" in capsys.readouterr().err


@pytest.mark.longer
def test_a_term_without_a_part_does_nothing_and_others_what_they_should(hopper: Table) -> None:
    terms = {each.name: each for each in TERMS}
    chosen = [terms[name] for name in ("grouped", "ends", "hiding", "calibration")]
    nothing, grouped, ends, hiding, calibration = ablation(hopper, Roofline(), chosen, silent)
    assert nothing.term == NOTHING_OFF.name
    assert grouped.runs == 0
    assert grouped.idle(nothing.fitted)
    assert ends.runs == len(hopper.runs)
    assert not ends.idle(nothing.fitted)
    assert hiding.runs <= sum(bool(each.run.problem.training.overlap.data) for each in hopper.runs)
    assert calibration.kept == calibration.fitted


def test_every_coefficient_can_be_switched_off_by_itself() -> None:
    alone = [[name for name in ranges() if each.unknown(name)] for each in TERMS]
    assert set(ranges()) <= {names[0] for names in alone if len(names) == 1} | {"synchronisation"}


def test_published_runs_name_their_sources() -> None:
    runs = [line.measurement for line in read_runs([PUBLISHED])]
    assert 15 <= len(runs) <= 30
    assert len({each.id for each in runs}) == len(runs)
    assert all(each.source["url"].startswith("https://") and each.notes and each.family for each in runs)
    assert {each.problem.cluster.device for each in runs} >= {"a100-sxm-80g", "h100-sxm", "b200-sxm", "gb200"}


@pytest.mark.slow
def test_the_command_prints_the_published_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output", str(tmp_path), "--folds", "2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    count = len(read_runs([PUBLISHED]))
    assert printed[0] == f"{count} runs: {count} priced, 0 refused"
    found = json.loads((tmp_path / "fidelity.json").read_text())
    total = found["errors"][-1]
    assert (total["name"], total["count"]) == ("all", count)
    assert sum(each["count"] for each in found["errors"] if each["kind"] == "group") == count
    row = next(each for each in printed if each.startswith("all "))
    shown = [f"{100 * total['columns'][name]['mean']:.1f}%" for name in ("catalogue", "validated", "constant")]
    assert [row.split()[index] for index in (2, 6, 10)] == shown
    assert total["columns"]["catalogue"]["mean"] < total["columns"]["constant"]["mean"]
    assert set(printed) <= set((tmp_path / "fidelity.md").read_text().splitlines())


def sourced(slow: float = 1.2) -> list[dict[str, Any]]:
    """Runs of two sources on one device that do not agree, and of one alone on another."""
    problem = line()["problem"]
    elsewhere = {**problem, "cluster": {**problem["cluster"], "device": "b200-sxm"}}
    usual = nest.evaluate(problem).batch_time
    assert usual is not None
    return [
        line(id="a", group="fast", measured={"batch_time": 0.9 * usual}),
        line(id="b", group="fast", measured={"batch_time": 0.9 * usual, "fits": True}),
        line(id="c", group="slow", measured={"batch_time": slow * usual}),
        line(id="d", group="alone", problem=elsewhere, measured={"batch_time": usual}),
    ]


def test_quantiles_count_weights() -> None:
    values, weights = numpy.array([3.0, 1.0, 2.0]), numpy.array([1.0, 1.0, 3.0])
    assert [weighted_quantile(values, weights, share) for share in (0.1, 0.5, 0.79, 0.81)] == [1.0, 2.0, 2.0, 3.0]


@pytest.mark.longer
def test_sources_whose_times_are_not_taken_are_in_no_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(written(tmp_path, *sourced()))]
    spread = tmp_path / "spread.toml"
    assert main([*files, "--nested", "--untimed", "slow", "--output", str(tmp_path), "--spread", str(spread)]) == 0
    printed = capsys.readouterr().out.splitlines()
    found = json.loads((tmp_path / "nested.json").read_text())
    assert {row["source"] for row in found["rows"]} == {"alone", "fast"}
    assert set(printed) <= set((tmp_path / "nested.md").read_text().splitlines())
    # No run has a device that is faster than its published figures.
    assert tomllib.loads(spread.read_text())["uncalibrated"]["median"] > 1
