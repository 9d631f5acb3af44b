"""Published runs: their problems say what was published, and what is told of a small one."""

from math import prod
from typing import Any

import pytest
from attrs import evolve

import nest
from benchmarks.published.measure import Outcome, measured, solved
from benchmarks.published.report import optima, page, prices
from benchmarks.published.runs import FOLDER, PublishedRun, published

RUNS = {run.name: run for run in published()}

TINY: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 256, "ffn": 1024, "heads": 4, "vocab": 1000}},
    "training": {"global_batch": 16, "sequence_length": 128, "micro_batch": 1},
    "cluster": {
        "device": "h100-sxm",
        "levels": [{"fanout": 2, "link": "nvlink4"}, {"fanout": 2, "link": "infiniband-ndr"}],
    },
    "fixed": {"tp": 4, "sp": True, "zero": 1, "recompute": "full"},
}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    run = PublishedRun("tiny", "Tiny", 0.01, "10 ms", ("https://example.org",), "all", TINY)
    return measured(run, 20.0)


def test_every_problem_is_of_a_run() -> None:
    assert {path.stem for path in (FOLDER / "problems").glob("*.yaml")} == set(RUNS)
    assert all(run.sources[0].startswith("https://") and run.told and run.assumed for run in RUNS.values())


@pytest.mark.parametrize("name", RUNS)
def test_published_layouts_use_the_published_devices(name: str) -> None:
    run = RUNS[name]
    fixed, levels = run.problem["fixed"], run.problem["cluster"]["levels"]
    devices = prod(level["fanout"] for level in levels)
    assert f"{devices:,} " in run.title
    assert fixed["tp"] * fixed.get("cp", 1) * fixed["pp"] * fixed["dp"] == devices
    assert run.problem["training"]["global_batch"] % (fixed["dp"] * fixed["micro_batch"]) == 0
    assert sum(fixed.get("stages", [])) in {
        0,
        run.problem["model"]["transformer"]["layers"] if "stages" in fixed else 0,
    }


def test_throughputs_are_converted() -> None:
    """Tokens of a batch over tokens per second of all devices."""
    for name, batch, rate, devices in (("deepseek-v3-h100", 8192, 1297, 1024), ("qwen3-235b-h100", 2048, 1575, 256)):
        assert RUNS[name].batch_time == pytest.approx(batch * 4096 / (rate * devices), rel=1e-4)
        assert f"{rate} tokens" in RUNS[name].told


def test_flops_are_converted_by_palm() -> None:
    """6 N + 12 L H Q T per token (PaLM, arXiv 2204.02311, appendix B), N without the embedding that is looked up."""
    hidden, ffn, layers, vocab, heads, head = 16384, 53248, 126, 128256, 128, 128
    parameters = layers * (2 * hidden * hidden + 2 * hidden * 8 * head + 3 * hidden * ffn) + vocab * hidden
    tokens = 2048 * 8192
    flops = tokens * (6 * parameters + 12 * layers * heads * head * 8192)
    assert RUNS["llama-3-405b"].batch_time == pytest.approx(flops / (16384 * 400e12), rel=0.01)


def test_the_page_tells_all(outcome: Outcome) -> None:
    told = page([outcome], "python -m benchmarks.published", {"date": "today"})
    assert "| Tiny | 10 ms | 0.01 s |" in told
    assert "| tp | 4 |" in told
    assert "recompute" in told
    assert "Absolute errors of 1 runs" in "\n".join(prices([outcome]))


def test_without_a_plan_it_says_so(outcome: Outcome) -> None:
    assert solved({**TINY, "cluster": {**TINY["cluster"], "memory": "1 MB"}}, 20.0).batch_time is None  # type: ignore[union-attr]
    nothing = evolve(outcome, best=None)
    assert (nothing.faster, nothing.changed) == (None, [])
    assert "no answer in time" in "\n".join(optima([nothing]))
    assert "no answer in time" in page([nothing], "", {})


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_published_layouts_can_be_priced(name: str) -> None:
    found = nest.evaluate(RUNS[name].problem).batch_time
    assert found is not None
    assert 1 / 4 < found / RUNS[name].batch_time < 4
