"""Published recipes of Megatron Bridge beside first plans: what contradicts the claims is told."""

from math import prod
from pathlib import Path

import pytest
from attrs import evolve

import nest
from benchmarks.published import hybrids
from benchmarks.published.recipes import Outcome, Recipe, changed, main, recipes

ROW = "bridge-25.09-llama3-8b-B200-fp8-8-gbs128"


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """A small recipe, and a first plan that is another."""
    model = {"transformer": {"layers": 4, "hidden": 512, "ffn": 2048, "heads": 8, "vocab": 1024}}
    training, levels = {"global_batch": 16, "sequence_length": 512}, [{"fanout": 4, "link": "nvlink4"}]
    asked = {"nest": 1, "model": model, "training": training, "cluster": {"device": "h100-sxm", "levels": levels}}
    recipe = Recipe("made up", {**asked, "fixed": {"tp": 4, "micro_batch": 1, "recompute": "full"}}, 1.0)
    return Outcome(recipe, nest.evaluate(recipe.problem), nest.solve(recipe.open), ())


@pytest.mark.longer
def test_a_slower_recipe_contradicts_nothing(outcome: Outcome) -> None:
    assert outcome.likely
    assert outcome.gain > 0
    assert list(outcome.contradictions(0.01)) == []
    assert [changed(outcome)[name] for name in ("tp", "recompute")] == [("4", "1"), ("full", "none")]


def test_a_faster_recipe_contradicts_the_proof_and_the_first_plan_if_it_is_likely_to_fit(outcome: Outcome) -> None:
    swapped = evolve(outcome, priced=outcome.first, first=evolve(outcome.priced, lower_bound=outcome.priced.batch_time))
    proof, first = swapped.contradictions(0.01)
    assert proof.startswith(f"it takes {outcome.first.batch_time} s, the search proves")
    assert first.endswith("faster than the first plan")
    unlikely = evolve(swapped, priced=evolve(outcome.first, fit_probability=0.79))
    assert list(unlikely.contradictions(0.01)) == []


def test_a_recipe_that_its_framework_cannot_run_is_told(outcome: Outcome) -> None:
    assert list(evolve(outcome, refusals=("it has no such module",)).contradictions(0.01)) == ["it has no such module"]


@pytest.mark.longer
def test_rows_are_priced_and_searched(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(recipes(shared)) == 65
    assert main([ROW, "--data", str(shared), "--output", str(tmp_path / "page.md")]) == 0
    printed = capsys.readouterr().out
    assert f"| {ROW} | 4.37 s |" in printed
    assert "No contradictions." in printed
    assert printed.strip() in (tmp_path / "page.md").read_text()
    assert main(["no such row", "--data", str(shared)]) == 2


def test_kernels_of_recurrences_are_priced_as_published() -> None:
    for kernel in hybrids.KERNELS:
        assert all(0.6 < ours / theirs < 1.2 for ours, theirs in hybrids.both(kernel)), kernel


@pytest.mark.longer
def test_rows_of_hybrids_are_priced_on_all_their_devices(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not (shared / hybrids.FOLDER).is_dir():
        pytest.skip("there is no hf_configs_2026")
    for row in hybrids.ROWS:
        problem = hybrids.problem(row, shared)
        fanouts, fixed = [level["fanout"] for level in problem["cluster"]["levels"]], problem["fixed"]
        assert prod(fanouts) == row.devices == fixed["dp"] * row.tp * fixed["pp"], row
    assert hybrids.main(["--data", str(shared)]) == 0
    page, tables = (Path(hybrids.__file__).parent / "README.md").read_text(), capsys.readouterr().out.split("\n\n")
    assert [len(each.splitlines()) for each in tables[::2]] == [len(hybrids.KERNELS) + 2, len(hybrids.ROWS) + 2]
    assert all(each.strip() in page for each in tables)
