"""Plans with ulysses: they hold, and ranks that divide a sequence do what the paper says they are for."""

import json
from typing import Any

import pytest

import nest_ulysses
from nest import api
from nest.hooks.registry import registry

PLUGINS = registry(extra=[nest_ulysses])

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 1024, "ffn": 4096, "heads": 16, "vocab": 1000}},
    "training": {"global_batch": 2, "sequence_length": 32768, "micro_batch": [1]},
    "cluster": {"device": "a100-sxm-80g", "levels": [{"fanout": 8, "link": "nvlink3"}]},
}


@pytest.mark.longer
@pytest.mark.parametrize(("attention", "tokens"), [("flash", 32768), ("unfused", 4096)])
@pytest.mark.parametrize("granularity", ["layer", "operator"])
def test_plans_with_it_are_proved_and_check(attention: str, tokens: int, granularity: str) -> None:
    training = {**PROBLEM["training"], "attention": attention, "sequence_length": tokens}
    search = {"granularity": granularity, "recompute": ["none"]}
    asked = {**PROBLEM, "training": training, "search": search, "strategies": {"ulysses": [4], "tp": [1]}}
    plan = api.solve(asked, plugins=PLUGINS)
    assert plan.status in ("optimal", "near-optimal")
    assert plan.candidate is not None
    assert plan.candidate.degrees["ulysses"] == 4
    assert api.check(plan.to_dict(), plugins=PLUGINS).ok


@pytest.mark.longer
def test_its_ranks_reduce_gradients_with_the_replicas() -> None:
    def sync(**decided: int) -> float:
        fixed = {**decided, "micro_batch": 1, "zero": 0, "recompute": "none"}
        return api.evaluate({**PROBLEM, "fixed": fixed}, plugins=PLUGINS).stages[0].sync_time

    assert sync(ulysses=4, dp=2) == sync(ulysses=8, dp=1) > sync(ulysses=4, dp=1) > 0


def test_rank_tables_have_a_column_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nest.hooks.placements.registry", lambda: PLUGINS)
    fixed = {"ulysses": 2, "tp": 2, "dp": 2, "micro_batch": 1, "zero": 0, "recompute": "none"}
    plan = api.evaluate({**PROBLEM, "fixed": fixed}, plugins=PLUGINS)
    files = PLUGINS.exporters()["ranks"].export(plan)
    rows = [line.split(",") for line in files["ranks.csv"].splitlines()]
    assert rows[0] == ["rank", "node", "gpu", "pp", "dp", "cp", "tp", "ep", "etp", "ulysses"]
    # Rank i is device i: its ranks lie outside those of tensor parallelism, and replicas outside both.
    assert [row[2] for row in rows[1:]] == [row[0] for row in rows[1:]]
    assert [(row[4], row[9], row[6]) for row in rows[1:]] == [(d, u, t) for d in "01" for u in "01" for t in "01"]
    found = json.loads(files["ranks.json"])
    assert found["order"] == "tp-cp-ulysses-dp-pp"
    assert found["sizes"] == {"pp": 1, "dp": 2, "cp": 1, "tp": 2, "ep": 1, "etp": 1, "ulysses": 2}


@pytest.mark.longer
def test_its_ranks_see_the_same_samples_and_are_not_counted() -> None:
    asked = {**PROBLEM, "strategies": {"ulysses": [4], "tp": [1]}, "constraints": ["dp == 2"]}
    plan = api.solve(asked, plugins=PLUGINS, verify=True)
    assert plan.data_parallel == 2
    assert plan.verification is not None
    assert plan.verification["status"] == "proved"
    assert api.check(plan.to_dict(), plugins=PLUGINS).ok
