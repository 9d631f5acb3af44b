"""Ranks are counted in the table and the placement files as the framework counts them that runs the plan."""

import json
from typing import Any

import pytest

from nest import api, evaluate, export
from nest.hooks.placements import placement, rank_order
from nest.spec import PlanDocument

DEFAULT, PIPELINE_INNER = ("tp", "cp", "dp", "pp"), ("tp", "cp", "pp", "dp")


def evaluated(order: str, target: str | None = None, **model: Any) -> PlanDocument:
    sizes = {"layers": 8, "hidden": 64, "ffn": 64, "heads": 8, "vocab": 64, **model}
    problem: dict[str, Any] = {
        "nest": 1,
        "model": {"transformer": sizes},
        "training": {"global_batch": 32, "sequence_length": 16},
        "cluster": {
            "device": "h100-sxm",
            "levels": [{"fanout": 4, "bandwidth": 4e11}, {"fanout": 4, "bandwidth": 5e10}],
        },
        "fixed": {"pp": 2, "tp": 2, "rank_order": order, "sp": True},
    }
    if model:
        problem["fixed"] |= {"ep": 4, "etp": 1}
    if target:
        problem["search"] = {"target": target}
    return evaluate(problem)


@pytest.mark.longer
@pytest.mark.parametrize("order", ["pp-inner", "dp-inner"])
@pytest.mark.parametrize("model", [{}, {"experts": 8, "top_k": 2, "moe_ffn": 32}], ids=["dense", "experts"])
def test_the_table_counts_as_the_flags_say(order: str, model: dict[str, Any]) -> None:
    """Megatron-LM, megatron/training/arguments.py: `tp-cp-ep-pp-dp` with `--use-tp-pp-dp-mapping`."""
    plan = evaluated(order, **model)
    flags = export(plan, "megatron")["megatron_flags.sh"]
    expected = PIPELINE_INNER if "--use-tp-pp-dp-mapping" in flags.split() else DEFAULT
    assert rank_order(plan) == expected
    table = json.loads(export(plan, "ranks")["ranks.json"])
    assert table["order"] == "-".join(expected)
    places = [[row[name] for name in reversed(expected)] for row in table["ranks"]]
    assert places == sorted(places)
    assert (expected == PIPELINE_INNER) == (order == "pp-inner" and not model)


@pytest.mark.longer
def test_ranks_in_the_order_of_devices_need_no_placement() -> None:
    plan = evaluated("pp-inner")
    assert [each.rank.device for each in placement(plan)] == list(range(16))


@pytest.mark.longer
@pytest.mark.parametrize("target", ["torchtitan", "nobody"])
def test_other_frameworks_count_stages_last(target: str) -> None:
    plan = evaluated("pp-inner")
    assert rank_order(plan) == PIPELINE_INNER
    plan.problem["search"]["target"] = target
    assert rank_order(plan) == DEFAULT


def test_placements_beside_a_framework_count_as_it_does() -> None:
    plan = evaluated("pp-inner")
    for framework, order in (("pytorch", DEFAULT), ("megatron", PIPELINE_INNER)):
        files = api.exported(plan, ("ranks", framework)).files
        assert json.loads(files["ranks.json"])["order"] == "-".join(order)
    both = api.exported(plan, ("ranks", "pytorch", "megatron")).files
    assert json.loads(both["ranks.json"])["order"] == "-".join(PIPELINE_INNER)
