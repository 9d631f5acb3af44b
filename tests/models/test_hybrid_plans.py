"""Small models of every kind of mixer are planned on 8 and on 1,024 devices; plans check and are proved or written."""

import pytest

import nest
from tests.strategies.families import FAMILIES

NEW = ("qwen3_next", "nemotron_h", "deepseek_v4", "glm_moe_dsa", "gemma4_text", "kimi_linear", "falcon_h1")
NEW += ("granitemoehybrid", "jamba", "mamba2", "lfm2", "minimax", "minimax_m3_vl", "step3p5", "bailing_hybrid")


def problem_of(family, nodes, target="none"):
    return {
        "nest": 1,
        "model": FAMILIES[family],
        "training": {"global_batch": 4 * nodes, "sequence_length": 512, "micro_batch": [1]},
        "cluster": {
            "device": "a100-sxm-40g",
            "levels": [
                {"fanout": 4, "bandwidth": "300 GB/s", "link": "nvlink3"},
                {"fanout": nodes, "bandwidth": "25 GB/s", "link": "infiniband-hdr"},
            ],
        },
        "strategies": {"tp": [1, 2], "cp": [1, 2], "ep": [1, 2], "sp": [1, 2]},
        "search": {"target": target, "recompute": ["none"], "rank_order": ["pp-inner"]},
    }


def test_targets_without_ulysses_take_hybrids_of_problems_without_it():
    assert nest.evaluate({**problem_of("mamba2", 2, "transformers"), "fixed": {"tp": 1}}).to_dict()["candidate"]


@pytest.mark.longer
@pytest.mark.parametrize("family", NEW)
def test_plans_of_hybrids_are_legal_replayed_and_proved(family):
    problem = problem_of(family, 2)
    plan = nest.solve(problem)
    assert plan.to_dict()["status"] in ("optimal", "near-optimal")
    assert nest.check(plan).ok
    assert nest.verify(plan, time_limit=10).verification["better_batch_time"] is None
    fixed = {"tp": 2, "cp": 2, "pp": 2}
    assert nest.evaluate({**problem, "fixed": fixed}).to_dict()["candidate"]["degrees"]["cp"] == 2


@pytest.mark.longer
@pytest.mark.parametrize("family", NEW)
def test_plans_of_hybrids_on_1024_devices_are_written_for_transformers_which_runs_every_mixer(family):
    plan = nest.solve(problem_of(family, 256, "transformers"))
    assert plan.to_dict()["status"] in ("optimal", "near-optimal")
    assert nest.check(plan).ok
    assert nest.export(plan, "transformers")
