"""Small models of every kind of mixer are planned on 8 devices, and the plans check."""

import pytest

import nest
from tests.strategies.families import FAMILIES

NEW = ("qwen3_next", "nemotron_h", "deepseek_v4", "glm_moe_dsa", "gemma4_text", "kimi_linear", "falcon_h1")
NEW += ("granitemoehybrid", "jamba", "mamba2", "lfm2", "minimax", "minimax_m3_vl", "step3p5", "bailing_hybrid")


@pytest.mark.longer
@pytest.mark.parametrize("family", NEW)
def test_plans_of_hybrids_are_legal_and_replayed(family):
    problem = {
        "nest": 1,
        "model": FAMILIES[family],
        "training": {"global_batch": 8, "sequence_length": 512, "micro_batch": [1]},
        "cluster": {
            "device": "a100-sxm-40g",
            "levels": [
                {"fanout": 4, "bandwidth": "300 GB/s", "link": "nvlink3"},
                {"fanout": 2, "bandwidth": "25 GB/s", "link": "infiniband-hdr"},
            ],
        },
        "strategies": {"tp": [1, 2], "cp": [1, 2], "ep": [1, 2], "sp": [1, 2]},
        "search": {"target": "none", "recompute": ["none"], "rank_order": ["pp-inner"]},
    }
    plan = nest.solve(problem)
    document = plan.to_dict()
    assert document["status"] in ("optimal", "near-optimal")
    assert nest.check(document).ok
    fixed = {"tp": 2, "cp": 2, "pp": 2}
    assert nest.evaluate({**problem, "fixed": fixed}).to_dict()["candidate"]["degrees"]["cp"] == 2
