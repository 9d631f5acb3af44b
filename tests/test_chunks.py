"""Plans of several chunks through the public interface."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from attrs import evolve, frozen

import nest
from nest import api
from nest.errors import InputError
from nest.hooks.registry import Registry, registry
from nest.hooks.spec import hook
from nest.report.text.summary import summary
from nest.spec import PlanDocument

MODEL = {"layers": 8, "hidden": 1024, "ffn": 4096, "heads": 16, "vocab": 512, "gated_mlp": False}
PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": MODEL},
    "training": {"global_batch": 8, "sequence_length": 1024, "micro_batch": [1], "schedule": ["1f1b", "interleaved"]},
    "cluster": {
        "device": "h100-sxm",
        "levels": [
            {"name": "node", "fanout": 4, "bandwidth": "450 GB/s", "latency": "3 us"},
            {"name": "rack", "fanout": 2, "bandwidth": "100 GB/s", "latency": "10 us"},
        ],
    },
    "constraints": ["pp == 4", "width == 1", "replicas == 1"],
}
DECIDED = {"schedule": "interleaved", "pp": 4, "dp": 1, "micro_batch": 1}


def evaluated(problem: dict[str, Any] = PROBLEM, **fix: Any) -> PlanDocument:
    return nest.evaluate({**problem, "constraints": []}, fix={**DECIDED, **fix})


def told(**fix: Any) -> str:
    """What is wrong with decisions."""
    with pytest.raises(InputError) as error:
        evaluated(**fix)
    return str(error.value)


@pytest.mark.longer
def test_chunks_shorten_the_bubble_and_are_chosen_for_it() -> None:
    plan = nest.solve(PROBLEM, verify=True)
    plain = nest.solve({**PROBLEM, "training": {**PROBLEM["training"], "schedule": "1f1b"}})
    assert (plan.schedule, plan.chunks, len(plan.stages)) == ("interleaved", 2, 4)
    assert plan.batch_time is not None
    assert plain.batch_time is not None
    assert plan.batch_time < plain.batch_time
    assert plan.verification is not None
    assert plan.verification["status"] == "proved"
    assert "PP 4, VP 2, DP 1, micro-batch 1 x 8, interleaved 1F1B" in summary(plan)
    assert plain.chunks == 1
    assert "VP" not in summary(plain)


def test_a_stage_lists_the_layers_of_all_its_chunks() -> None:
    first, *_, last = evaluated().stages
    assert [name.rpartition(".")[2] for name in first.layers] == ["embedding", "0", "4"]
    assert [name.rpartition(".")[2] for name in last.layers] == ["3", "7", "head"]


@pytest.mark.longer
def test_the_last_stage_sends_back_to_the_first() -> None:
    stages = evaluated(tp=2).stages
    assert [(stage.level_in, stage.level_out) for stage in stages] == [(1, 0), (0, 1), (1, 0), (0, 1)]
    plain = evaluated(tp=2, schedule="1f1b").stages
    assert (plain[0].level_in, plain[-1].level_out) == (-1, -1)


def test_in_flight_is_counted_in_chunks() -> None:
    assert [stage.in_flight for stage in evaluated().stages] == [(2 * (4 - i) + 4 + 1) / 2 for i in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("fix", "words"),
    [
        ({"chunks": 3}, "10 transformer blocks, embedding and head are too few for 12 chunks, 3 for each of 4 stages"),
        ({"pp": 1}, "needs at least 2 stages"),
        ({"micro_batches": 6, "pp": 4, "replicas": 1, "micro_batch": 1}, "micro_batches == 6"),
        ({"micro_batch": 4, "pp": 4}, "'interleaved' does not run 2 micro-batches over 4 stages of 2 chunks"),
        ({"chunks": 1}, "chunks == 1"),
        ({"schedule": "1f1b", "chunks": 2}, "chunks == 2"),
        ({"stages": [2, 2, 2, 2]}, "but schedule 'interleaved' needs 1, 2, 3, 4, 1, 2, 3, 4; give each"),
    ],
)
def test_what_is_no_split_is_told(fix: dict[str, Any], words: str) -> None:
    assert words in told(**fix)


@pytest.mark.longer
def test_check_sees_chunks() -> None:
    plan = evaluated()
    assert nest.check(plan).ok
    assert not nest.check(evolve(plan, chunks=1)).ok
    assert not nest.check(evolve(plan, schedule="1f1b")).ok
    first, second, *rest = plan.stages
    swapped = (evolve(first, layers=second.layers), evolve(second, layers=first.layers), *rest)
    told = nest.check(evolve(plan, stages=swapped)).disagreements
    assert any("does not list the layers of its 2 chunks" in each for each in told)
    unsaid = tuple(evolve(stage, chunks=None) for stage in swapped)
    assert any("even split" in each for each in nest.check(evolve(plan, stages=unsaid)).disagreements)


def test_blocks_that_do_not_divide_make_earlier_chunks_longer() -> None:
    ten = {**PROBLEM, "model": {"transformer": {**MODEL, "layers": 10}}}
    plan = evaluated(ten, chunks=2)
    assert [[len(chunk) for chunk in stage.chunks or ()] for stage in plan.stages] == [[3, 1], [2, 1], [1, 1], [1, 2]]
    assert nest.check(plan).ok


@frozen
class Turns:
    """A toy schedule of somebody else: chunks without any bubble."""

    chunks: int = 2
    name = "turns"

    def with_chunks(self, chunks: int) -> "Turns":
        return Turns(chunks)

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        return float(micro_batches), 0.0

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> float:
        return float(stages)


def with_schedule(schedule: object) -> Registry:
    module = ModuleType("some_distribution")

    @hook
    def nest_schedules() -> list[Any]:
        return [schedule]

    module.nest_schedules = nest_schedules  # type: ignore[attr-defined]
    return registry([module])


@pytest.mark.longer
def test_somebody_elses_schedule_deals_chunks_too() -> None:
    asked = {**PROBLEM, "training": {**PROBLEM["training"], "schedule": ["1f1b", "turns"]}}
    plugins = with_schedule(Turns())
    plan = api.solve(asked, plugins=plugins, verify=True)
    assert (plan.schedule, plan.chunks) == ("turns", 2)
    assert plan.verification is not None
    assert plan.verification["status"] == "proved"
    assert api.check(plan, plugins=plugins).ok


@pytest.mark.longer
def test_ends_count_as_blocks_where_only_so_chunks_come_out_even() -> None:
    fourteen = {**PROBLEM, "model": {"transformer": {**MODEL, "layers": 14}}}
    plan = evaluated(fourteen, chunks=4)
    held = [[name.rpartition(".")[2] for name in stage.layers] for stage in plan.stages]
    assert held == [
        ["embedding", "3", "7", "11"],
        ["0", "4", "8", "12"],
        ["1", "5", "9", "13"],
        ["2", "6", "10", "head"],
    ]
    assert nest.check(plan).ok
    assert evaluated(fourteen).chunks == 2
    assert evaluated(fourteen, chunks=3).chunks == 3


def test_numbers_of_chunks_that_embedding_and_head_make_even_are_tried() -> None:
    """Two stages of 14 blocks and two ends have 16 units, which make 8 chunks each; blocks alone make 7."""
    fourteen = {**PROBLEM, "model": {"transformer": {**MODEL, "layers": 14}}}
    fourteen |= {
        "training": {**PROBLEM["training"], "schedule": "interleaved"},
        "constraints": PROBLEM["constraints"][1:],
        "search": {**PROBLEM.get("search", {}), "within": 0},
    }
    seven, eight = (nest.solve({**fourteen, "fixed": {"pp": 2, "chunks": chunks}}).batch_time for chunks in (7, 8))
    assert eight is not None
    assert seven is not None
    assert nest.solve({**fourteen, "fixed": {"pp": 2}}).batch_time == eight < seven


@pytest.mark.longer
def test_measured_interleaved_runs_are_priced(shared: Path) -> None:
    """Runs of 126 blocks in 64 or 128 chunks count the embedding and the head as blocks."""
    rows = [json.loads(line) for line in (shared / "fidelity" / "measured.jsonl").read_text().splitlines()]
    runs = [row["problem"] for row in rows if (row["problem"].get("fixed") or {}).get("schedule") == "interleaved"]
    assert len(runs) == 35
    for problem in runs[::6]:
        plan = nest.evaluate(problem)
        assert plan.chunks == problem["fixed"]["chunks"]
        assert nest.check(plan).ok
