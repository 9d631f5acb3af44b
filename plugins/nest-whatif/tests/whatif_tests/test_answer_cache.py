"""Answers kept on disk: the same as new ones, and only where they are sure to be."""

import json
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.documents import runner_up
from nest.formulate.problem import complete_problem
from nest.hooks.registry import registry
from nest.io import KEPT_IN, KEPT_NOWHERE
from nest.solve.effort import Deadline
from nest.spec import PlanDocument
from nest.whatif.disk_cache import cached_plan
from whatif_tests.test_explain import FEW


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(KEPT_IN, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def plan() -> PlanDocument:
    return nest.solve(FEW)


def told(plan: PlanDocument, **options: Any) -> str:
    return json.dumps(nest.explain(plan, **options).to_dict())


def test_a_second_solve_of_a_problem_is_the_first_without_a_search(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, none = nest.solve(FEW), nest.solve({**FEW, "constraints": ["devices < 1"]})
    monkeypatch.setattr(runner_up, "searched", None)
    assert json.dumps(nest.solve(FEW).to_dict()) == json.dumps(new.to_dict())
    assert nest.solve({**FEW, "constraints": ["devices < 1"]}) == none
    for changed in ({"problem": {**FEW, "constraints": ["pp <= 1"]}}, {"problem": FEW, "verify": True}):
        with pytest.raises(TypeError):
            nest.solve(**changed)


@pytest.mark.longer
def test_a_plan_that_a_stop_cut_short_is_not_kept(folder: Path) -> None:
    deadline = Deadline()

    def stopped() -> PlanDocument:
        deadline.stop()
        return plan

    problem, plan = complete_problem(FEW, registry()), nest.solve(FEW, time_limit=60)
    assert cached_plan(problem, registry(), deadline, stopped) is plan
    assert not folder.exists()


@pytest.mark.longer
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"constraints": ["devices < 1"]},
        {"cluster": {**FEW["cluster"], "memory": 4e9}},
        {"training": {**FEW["training"], "schedule": ["1f1b", "zero-bubble"], "memory_risk": 0.3}},
        {"model": "gpt2", "cluster": {"device": "a100-sxm-80g", "levels": [{"fanout": 8, "link": "nvlink3"}]}},
    ],
    ids=str,
)
def test_plans_that_are_kept_are_cold_ones(changed: dict[str, Any], folder: Path) -> None:
    problem = {**FEW, **changed}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEPT_IN, KEPT_NOWHERE)
        cold = json.dumps(nest.solve(problem).to_dict())
    first = json.dumps(nest.solve(problem).to_dict())
    (path,) = folder.iterdir()
    before = path.stat().st_ino
    assert json.dumps(nest.solve(problem).to_dict()) == first == cold
    assert path.stat().st_ino == before


@pytest.mark.longer
def test_another_plan_and_other_code_are_asked_again(
    plan: PlanDocument, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(plan)
    first = set(folder.iterdir())
    told(nest.solve({**FEW, "constraints": ["replicas <= 1"]}))
    second = set(folder.iterdir())
    assert first < second
    monkeypatch.setattr("nest.whatif.disk_cache.code", lambda: "other")
    told(plan)
    assert len(set(folder.iterdir()) - second) == len(first)


@pytest.mark.longer
def test_nothing_is_kept_with_plug_ins_or_a_time_limit(
    plan: PlanDocument, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(plan, time_limit=60)
    nest.solve(FEW, time_limit=60)
    (tmp_path / "mine.py").write_text("")
    monkeypatch.setenv("NEST_PLUGINS", str(tmp_path / "mine.py"))
    told(plan)
    nest.solve(FEW)
    assert not folder.exists()
