"""The paper's figures, a small part of them: honest shares, and no baseline faster than ours."""

from math import prod
from pathlib import Path

import pytest
from attrs import evolve

from benchmarks.paper import cells
from benchmarks.paper.beside import beside_figure_5, effort_text, memory_text
from benchmarks.paper.cells import (
    DEVICES,
    GPU,
    MODELS,
    TPU,
    artifact,
    figure_5,
    figure_6,
    on_grids,
    table_3,
    today,
    with_added,
)
from benchmarks.paper.measure import Outcome, Row
from benchmarks.paper.published import COLUMNS, FIGURE_5, FIGURE_6, HEADLINE, TABLE_3, headline
from benchmarks.paper.report import Results, added_text, figure_5_text, gains_text, verdict
from nest.io import structure
from nest.spec import Problem


def test_grids_are_planned_by_hop_distances_and_as_they_are() -> None:
    levels, whole = (cell.problem()["cluster"] for cell in on_grids()[:2])
    assert [level["name"] for level in levels["levels"]] == ["2 hops", "4 hops", "6 hops"]
    assert prod(level["fanout"] for level in levels["levels"]) == prod(whole["topology"]["torus"]["shape"]) == 64
    for cell in on_grids():
        structure(cell.problem(), Problem)


def test_an_added_strategy_is_the_only_one_that_shares_a_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "known", lambda: ("tp", "cp", "ulysses"))
    asked = {cell.added: cell.problem()["strategies"] for cell in with_added()}
    assert asked[None] == {"cp": (1,), "ulysses": (1,)}
    assert asked["cp"] == {"cp": (1, 2, 4, 8), "ulysses": (1,)}
    assert asked["ulysses"] == {"cp": (1,), "ulysses": (1, 2, 4, 8)}


def test_the_gain_of_a_strategy_is_over_the_same_planner_without_it() -> None:
    without, added = with_added(quick=True)[:2]
    first = evolve(outcome(nest=10.0, manual=5.0, alpa=None), cell=without)
    second = evolve(outcome(nest=12.0, manual=5.0, alpa=3.0), cell=added)
    lines = added_text(Results((first, second)), (without, added)).splitlines()
    assert lines[2].split()[:6] == ["llama-3.1-8b", "32768", "cp", "1.200", "1.000", "-"]
    assert len(lines) == 3


def test_the_cells_are_the_papers() -> None:
    assert {(cell.model, cell.devices) for cell in figure_5()} == {(m, d) for m in MODELS for d in DEVICES}
    assert {(cell.model, cell.micro_batch) for cell in figure_6()} == {
        (m, size) for m in FIGURE_6 for size in (1, 2, 4, 8)
    }
    assert {cell.schedule for cell in today()} == {"1f1b"}
    assert set(TABLE_3) <= {(cell.model, cell.devices) for cell in table_3()}
    assert set(FIGURE_5) == set(MODELS)
    assert {(m, d) for m in FIGURE_5 for d in DEVICES[: len(FIGURE_5[m])]} == {(c.model, c.devices) for c in figure_5()}
    for cell in (figure_5()[-1], table_3()[0]):
        problem = structure(cell.problem(), Problem)
        assert problem.training.global_batch == 4096
        fanouts = [level.fanout for level in problem.cluster.levels or ()]
        assert fanouts == [8, 4, cell.devices // 32]
        assert not problem.search.recompute_layers
        assert problem.search.within == 0


def outcome(refuted: bool = False, **throughputs: float | None) -> Outcome:
    rows = tuple(Row(name, throughput, "") for name, throughput in throughputs.items())
    return Outcome(figure_5()[0], rows, "optimal", refuted, 1.0)


def test_gains_count_only_plans_that_fit() -> None:
    first = outcome(nest=10.0, manual=5.0, alpa=None)
    second = evolve(outcome(nest=20.0, manual=20.0, alpa=None), cell=figure_5()[1])
    lines = gains_text(Results((first, second))).splitlines()
    assert lines[2].split() == [TPU, "manual", "2", "1", "1.500", "2.000", "0", "-"]
    assert lines[3].split() == [TPU, "alpa", "0", "0", "-", "-", "2", "-"]


def test_gains_are_told_by_network_and_of_cells_that_have_a_plan() -> None:
    first = outcome(nest=10.0, manual=5.0)
    other = evolve(outcome(nest=20.0, manual=20.0), cell=table_3()[0])
    nowhere = evolve(outcome(nest=None, manual=None), cell=figure_5()[1], status="infeasible")
    lines = gains_text(Results((first, nowhere, other))).splitlines()
    assert lines[2].split() == [TPU, "manual", "1", "0", "2.000", "2.000", "0", "-"]
    assert lines[3].split() == [GPU, "manual", "1", "1", "1.000", "1.000", "0", "-"]


def test_a_cell_without_a_plan_says_why() -> None:
    rows = (Row("nest", None, "Memory is tightest: 1 byte too many."), Row("manual", None, "", 1.0))
    told = verdict(Results((Outcome(figure_5()[0], rows, "infeasible", False, 1.0),)))
    assert told.endswith(f"No plan fits in 1: {figure_5()[0].name}: Memory is tightest: 1 byte too many.")


def test_shares_are_over_the_first_size_at_which_manual_fits() -> None:
    first = outcome(nest=10.0, manual=None)
    second = evolve(outcome(nest=24.0, manual=12.0), cell=figure_5()[1])
    lines = figure_5_text(Results((first, second)), figure_5()[:2]).splitlines()
    assert lines[2].split()[2:4] == ["0.83", "-"]
    assert lines[3].split()[2:4] == ["2.00", "1.00"]


def test_a_baseline_that_beats_us_is_told_loudly() -> None:
    assert "A BASELINE BEATS OUR PLAN" in verdict(Results((outcome(refuted=True, nest=1.0, manual=2.0),)))


def test_the_artifacts_inputs_are_found(shared: Path) -> None:
    cells = artifact(shared / "artifact")
    assert {cell.model for cell in cells} == {"bert-large", "llama-2-7b", "llama-3-70b", "gpt3-175b"}
    assert len(artifact(shared / "artifact", "__seconds")) == 12
    assert structure(cells[0].problem(), Problem).profile is not None


def test_no_published_ratio_is_the_headline() -> None:
    rows = [row for rows in FIGURE_5.values() for row in rows] + [row for rows in FIGURE_6.values() for row in rows]
    ratios = [row[-1] / share for row in (*rows, *TABLE_3.values()) if row[-1] for share in row[:-1] if share]
    assert not [ratio for ratio in ratios if round(ratio, 2) == HEADLINE]
    means = {name: mean for name, (_, mean, _) in headline().items()}
    assert min(means, key=lambda name: abs(means[name] - HEADLINE)) == "alpa-e"
    assert abs(means["alpa-e"] - HEADLINE) < 0.02


def test_published_shares_stand_beside_ours() -> None:
    first = outcome(**{"nest": 10.0, "manual": 5.0, "nest-paper": 9.0, "mcmc": 5.0, "alpa-e": None, "phaze": 10.0})
    line = beside_figure_5(Results((first,)), figure_5()[:1]).splitlines()[2]
    published = FIGURE_5["bert-large"][0]
    ours = (1.0, 1.0, None, 2.0, 1.8)
    shown = [
        f"{theirs:.2f} / {'-' if mine is None else f'{mine:.2f}'}" for theirs, mine in zip(published, ours, strict=True)
    ]
    assert [part.strip() for part in line.split("  ") if "/" in part] == shown
    assert line.endswith("2.00")
    assert len(COLUMNS) == len(published)


def test_search_times_and_memory_are_told_by_size() -> None:
    rows = (Row("nest", 2.0, "", memory=8.0, seconds=1.0), Row("manual", 2.0, "", memory=4.0, seconds=3.0))
    first = Outcome(figure_5()[0], rows, "optimal", False, 4.0)
    second = evolve(first, cell=figure_5()[1], rows=(evolve(rows[0], seconds=5.0), evolve(rows[1], throughput=None)))
    lines = effort_text((first, second)).splitlines()
    assert lines[2].split() == ["nest", "1", "s,", "1", "s", "5", "s,", "5", "s"]
    told = memory_text(Results((first, second)), figure_5()[:2]).splitlines()
    assert told[3].split() == ["manual", "64", "1", "0.50", "0.50", "0.50"]
