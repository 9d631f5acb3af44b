"""The paper's figures, a small part of them: honest shares, and no baseline faster than ours."""

import json
from pathlib import Path

import pytest
from attrs import evolve

from benchmarks.paper import __main__ as command
from benchmarks.paper.cells import DEVICES, GPU, MODELS, TPU, Cell, artifact, every, figure_5, figure_6, table_3
from benchmarks.paper.measure import Outcome, Row, _measured
from benchmarks.paper.published import FIGURE_5, TABLE_3
from benchmarks.paper.report import Results, figure_5_text, gains_text, verdict
from nest.io import structure
from nest.spec import Problem


@pytest.mark.slow
def test_the_quick_part_runs_and_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--quick", "--output", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    for title in ("Figure 5", "Figure 6", "Table 3", "no baseline is faster in any of them"):
        assert title in told
    cells = json.loads((tmp_path / "paper.json").read_text())["cells"]
    assert len(cells) == len(every((figure_5(True), figure_6(True), table_3(True))))
    for cell in cells:
        assert cell["status"] == "optimal"
        throughputs = {row["planner"]: row["throughput"] for row in cell["plans"]}
        assert all(each is None or each <= throughputs["nest"] * (1 + 1e-9) for each in throughputs.values())
    assert "manual" in (tmp_path / "paper.md").read_text()


def test_the_cells_are_the_papers() -> None:
    assert {(cell.model, cell.devices) for cell in figure_5()} == {(m, d) for m in MODELS for d in DEVICES}
    assert {cell.micro_batch for cell in figure_6()} == {1, 2, 4, 8}
    assert set(TABLE_3) <= {(cell.model, cell.devices) for cell in table_3()}
    assert set(FIGURE_5) == set(MODELS)
    for cell in (figure_5()[-1], table_3()[0]):
        problem = structure(cell.problem(), Problem)
        assert problem.training.global_batch == 4096
        fanouts = [level.fanout for level in problem.cluster.levels or ()]
        assert fanouts == [8, 4, cell.devices // 32]


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


@pytest.mark.slow
def test_decisions_name_what_any_stage_has() -> None:
    found = _measured(Cell("llama-3-70b", GPU, 64, 1))
    assert any("+" in row.told for row in found.rows), [row.told for row in found.rows]
    assert all("-inner" in row.told for row in found.rows)


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
