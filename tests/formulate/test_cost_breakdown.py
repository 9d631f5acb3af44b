"""Collectives inside layers: what is told of each adds up to what the plan takes for all."""

import pytest

import nest
from nest.report.text.first_screen import first_screen

MODELS = {"dense": {"layers": 4, "hidden": 4096, "ffn": 16384, "heads": 32, "vocab": 1024}}
MODELS["experts"] = {**MODELS["dense"], "experts": 8, "top_k": 2, "moe_ffn": 8192}
LAYOUTS = {
    "tp": ("dense", {"tp": 4, "sp": True}, {}),
    "tp hidden": ("dense", {"tp": 4, "sp": True}, {"tensor": True}),
    "tp across nodes": ("dense", {"tp": 8, "sp": False, "pp": 2}, {}),
    "cp": ("dense", {"cp": 4, "tp": 2, "sp": True}, {}),
    "ep": ("experts", {"ep": 8}, {"experts": True}),
    "all": ("experts", {"tp": 2, "sp": True, "cp": 2, "ep": 4, "pp": 2, "recompute": "full"}, {"tensor": True}),
}


def problem(layout, **changed):
    model, fixed, overlap = LAYOUTS[layout]
    return {
        "nest": 1,
        "model": {"transformer": MODELS[model]},
        "training": {
            "global_batch": 32,
            "sequence_length": 4096,
            "stack": "none",
            "graphs": "layers",
            "overlap": overlap,
        },
        "cluster": {
            "device": "h100-sxm",
            "levels": [
                {"name": "node", "fanout": 4, "bandwidth": "450 GB/s", "link": "nvlink4"},
                {"name": "rail", "fanout": 4, "bandwidth": "5 GB/s", "latency": "10 us"},
            ],
        },
        "fixed": fixed,
        **changed,
    }


@pytest.mark.parametrize("granularity", ["layer", "operator"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_shows_adds_up_to_what_layers_take_more(layout, granularity):
    plan = nest.evaluate(problem(layout, search={"granularity": granularity}))
    told, shares = plan.summary["collectives"], plan.summary["time_shares"]
    assert sum(each["shown"] for each in told) == pytest.approx(shares["collectives"], rel=1e-9)
    assert all(each["shown"] + each["hidden"] == pytest.approx(each["seconds"]) for each in told)
    assert sum(shares.values()) == pytest.approx(plan.batch_time)


@pytest.mark.parametrize(
    ("layout", "places"),
    [
        ("tp", {("tp", "node")}),
        ("tp across nodes", {("tp", "rail")}),
        ("cp", {("cp", "rail"), ("tp", "node")}),
        ("ep", {("ep", "rail")}),
    ],
)
def test_each_strategy_is_told_with_its_outermost_level(layout, places):
    plan = nest.evaluate(problem(layout))
    assert {(each["strategy"], each["level"]) for each in plan.summary["collectives"]} == places


def test_overlap_hides_what_it_hides():
    shown, hidden = (nest.evaluate(problem(layout)).summary["collectives"][0] for layout in ("tp", "tp hidden"))
    assert shown["hidden"] == pytest.approx(0.0, abs=1e-9)
    assert hidden["seconds"] == pytest.approx(shown["seconds"])
    assert 0 < hidden["shown"] < shown["shown"]


def test_layers_that_take_as_long_as_their_collectives_show_them():
    slow = problem("tp across nodes")
    slow["training"]["overlap"] = {"tensor": True}
    slow["cluster"]["levels"][1]["bandwidth"] = "10 MB/s"
    told = nest.evaluate(slow).summary["collectives"][0]
    assert told["shown"] > 0.99 * told["seconds"]


def test_without_collectives_none_are_told():
    plan = nest.evaluate(problem("tp", fixed={}))
    assert plan.summary["collectives"] == []
    assert plan.summary["time_shares"]["collectives"] == 0


def small(**training):
    """A model whose layers take next to nothing, in micro-batches of one short sequence, on one device."""
    device = {
        "name": "fast",
        "memory": "80 GB",
        "memory_bandwidth": "3 TB/s",
        "peak": {"bf16": "1 PFLOP/s", "fp8": "2 PFLOP/s"},
        "calibration": {"host_launch": 1e-4, "grace_launch": 1.5},
    }
    return nest.evaluate(
        {
            "nest": 1,
            "model": {"transformer": MODELS["dense"]},
            "training": {"global_batch": 4, "sequence_length": 128, "stack": "none", **training},
            "cluster": {"device": device, "levels": [{"name": "node", "fanout": 1, "bandwidth": "450 GB/s"}]},
            "fixed": {"micro_batch": 1},
        }
    )


def test_a_plan_that_waits_for_its_host_says_for_how_long():
    waiting, captured = small(), small(graphs="layers")
    assert waiting.summary["launching"] > 0.2 * waiting.batch_time
    assert "launching" not in captured.summary
    # Nothing else differs: what graphs save is what was waited for.
    assert waiting.batch_time - captured.batch_time == pytest.approx(waiting.summary["launching"])
    assert "larger micro-batches or CUDA graphs help" in first_screen(waiting)
    assert "launches kernels late" not in first_screen(captured)
