"""What a plan decides that a search without `fixed` would not try is said in the document and on standard error."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

import nest
from nest.cli import app
from nest.errors import InputError
from tests.test_any_problem import DESCRIBED, MEASURED

LISTED = {
    "recompute": "none",
    "micro_batch": 1,
    "schedule": "1f1b",
    "rank_order": "pp-inner",
    "zero": 1,
    "tp": 2,
    "sp": True,
}


def problem(fixed: dict[str, Any], **sections: Any) -> dict[str, Any]:
    asked = copy.deepcopy({key: value for key, value in DESCRIBED.items() if key != "constraints"})
    for name, section in sections.items():
        asked[name] = {**asked.get(name, {}), **section}
    return {**asked, "fixed": fixed}


def test_a_number_of_all_ranks_is_all_of_them_in_lists() -> None:
    assert nest.evaluate(problem(LISTED, search={"zero_degree": [4]})).outside == ()
    (told,) = nest.evaluate(problem(LISTED, search={"zero_degree": [2]})).outside or ()
    assert told == "zero_degree is all, but search.zero_degree allows 2 only"


def test_a_strategy_that_is_named_is_searched() -> None:
    decided = {**LISTED, "batch": 2, "micro_batch": 2}
    assert nest.evaluate(problem(decided, strategies={"batch": [1, 2]})).outside == ()


def test_what_a_target_cannot_run_is_outside() -> None:
    plan = nest.evaluate(problem({**LISTED, "pp": 2, "schedule": "gpipe"}, search={"target": "megatron"}))
    assert plan.outside is not None
    assert [told for told in plan.outside if told.startswith("search.target: ") and "gpipe" in told]
    assert nest.check(plan).ok


def test_the_candidates_of_a_profile_are_those_of_strategies() -> None:
    (first, *_) = MEASURED["profile"]["candidates"]
    (name,) = [name for name, degree in first["degrees"].items() if degree > 1][:1] or ["tp"]
    asked = {**MEASURED, "strategies": {name: [max(first["degrees"].get(name, 1) * 2, 2)]}, "constraints": []}
    plan = nest.evaluate({**asked, "fixed": {**first["degrees"], name: first["degrees"].get(name, 1)}})
    assert plan.outside is not None
    assert [told for told in plan.outside if told.startswith(f"{name} is ")]


def test_solve_names_a_decision_that_no_list_allows_by_default() -> None:
    asked = problem({"schedule": "nest"})
    del asked["training"]["schedule"]
    plan = nest.solve(asked)
    assert plan.outside == ("schedule is nest, but training.schedule allows 1f1b, interleaved only",)
    assert nest.check(plan).ok
    assert nest.solve(problem({"schedule": "gpipe"})).outside == ()


def deep(fixed: dict[str, Any]) -> dict[str, Any]:
    """Twelve blocks on four devices whose pipelines matter, without a target."""
    return {
        "nest": 1,
        "model": {"transformer": {"layers": 12, "hidden": 1024, "ffn": 4096, "heads": 8, "vocab": 32000}},
        "training": {"global_batch": 8, "sequence_length": 1024, "micro_batch": 1},
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 4, "bandwidth": "25 GB/s"}]},
        "search": {"target": "none"},
        "fixed": {"schedule": "interleaved", **fixed},
    }


BLOCKS = [f"layers.{index}" for index in range(12)]


def test_decided_chunks_that_constraints_refuse_are_infeasible() -> None:
    """Without chunks their stages would follow no order, which is no mistake."""
    stages = [["embedding", *BLOCKS[:3], *BLOCKS[6:9]], [*BLOCKS[3:6], *BLOCKS[9:], "head"]]
    plan = nest.solve({**deep({"chunks": 2, "stages": stages}), "constraints": ["replicas == 3"]})
    assert plan.status == "infeasible"
    assert "replicas == 3" in (plan.diagnosis or "")


def test_check_sees_what_is_not_outside() -> None:
    plan = nest.evaluate(problem({**LISTED, "zero": 3}))
    assert not nest.check(evolve(plan, outside=())).ok
    assert nest.check(evolve(plan, outside=None)).ok


@pytest.mark.longer
@pytest.mark.parametrize("command", ["solve", "evaluate"])
def test_commands_say_so(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = problem({**LISTED, "schedule": "nest"})
    del asked["training"]["schedule"]
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(asked))
    monkeypatch.setattr("sys.argv", ["nest", command, str(path), "--json"])
    with pytest.raises(SystemExit) as stop:
        app.main()
    assert stop.value.code == 0
    printed = capsys.readouterr()
    told = "schedule is nest, but training.schedule allows 1f1b, interleaved only"
    assert f"{path}: outside the search space: {told}." in printed.err
    assert json.loads(printed.out)["outside"] == [told]


def test_a_decision_chooses_among_the_degrees_of_its_list() -> None:
    highest = problem({"tp": True}, strategies={"tp": [1, 2]})
    assert nest.solve({**highest, "constraints": []}).candidate.degrees["tp"] == 2  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"fixed.tp allows 2 and strategies.tp allows true"):
        nest.solve(problem({"tp": 2}, strategies={"tp": [True]}))
