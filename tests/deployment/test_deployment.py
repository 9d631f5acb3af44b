"""A plan in frameworks' terms says what the plan says."""

from typing import Any

import pytest
from attrs import evolve

import nest
from nest.deployment import deployment
from nest.hooks.pipelines import deployed
from nest.spec import PlanDocument

LAYERS = 8


def plan(fixed: dict[str, Any], *, layers: int = LAYERS, schedule: str = "1f1b", experts: int = 0) -> PlanDocument:
    """The plan that `fixed` describes on 32 devices."""
    sizes = {"layers": layers, "hidden": 512, "ffn": 1024, "heads": 8, "vocab": 1000}
    sparse = {"experts": experts, "top_k": 2} if experts else {}
    return nest.evaluate(
        {
            "nest": 1,
            "model": {"transformer": {**sizes, **sparse}},
            "training": {"global_batch": 64, "sequence_length": 512, "schedule": schedule},
            "cluster": {
                "device": "h100-sxm",
                "levels": [{"fanout": 8, "bandwidth": "450 GB/s"}, {"fanout": 4, "bandwidth": "50 GB/s"}],
            },
            "fixed": fixed,
        }
    )


def test_ranks_make_the_world() -> None:
    shape = deployment(plan({"tp": 2, "cp": 2, "pp": 2, "dp": 4, "micro_batch": 2}))
    assert (shape.tp, shape.cp, shape.stages, shape.data_parallel) == (2, 2, 2, 4)
    assert shape.world_size == 32 == shape.tp * shape.cp * shape.stages * shape.data_parallel
    assert shape.micro_batch * shape.micro_batches * shape.data_parallel == shape.global_batch == 64


def test_experts_beside_copies_count_as_data_parallel_ranks() -> None:
    shape = deployment(plan({"tp": 2, "ep": 8, "etp": 1, "pp": 2, "dp": 8}, experts=8))
    assert shape.width == 8
    assert shape.copies == 4
    assert shape.data_parallel == 8
    assert shape.world_size == 32
    assert shape.micro_batch * shape.micro_batches * shape.data_parallel == 64


def test_runs_pass_the_layers_in_order() -> None:
    found = plan({"pp": 4, "stages": [1, 2, 2, 3]})
    runs = deployed(found).runs
    assert [run.blocks for run in runs] == [(0,), (1, 2), (3, 4), (5, 6, 7)]
    assert [run.others for run in runs] == [("embedding",), (), (), ("head",)]


def test_only_blocks_recomputed_in_full_count_as_recomputed() -> None:
    found = plan({"pp": 2})
    modes = ({"recompute": "full"}, {"recompute": "selective"})
    stages = [evolve(stage, **mode) for stage, mode in zip(found.stages, modes, strict=True)]
    shape = deployment(evolve(found, stages=tuple(stages)))
    assert [shape.recomputed(run) for run in shape.runs] == [LAYERS // 2, 0]
    first = evolve(stages[0], recompute_layers=3, recompute_rest="none")
    shape = deployment(evolve(found, stages=(first, stages[1])))
    assert [shape.recomputed(run) for run in shape.runs] == [3, 0]


@pytest.mark.parametrize(("stages", "chunks"), [(2, 2), (2, 4), (4, 2)])
def test_chunks_go_round_the_stages(stages: int, chunks: int) -> None:
    found = plan({"pp": stages, "chunks": chunks, "schedule": "interleaved"}, schedule="interleaved")
    runs = deployed(found).runs
    assert [(run.stage, run.chunk) for run in runs] == [(k % stages, k // stages) for k in range(stages * chunks)]
    assert [block for run in runs for block in run.blocks] == list(range(LAYERS))
    assert {len(run.blocks) for run in runs} == {LAYERS // (stages * chunks)}
    assert runs[0].others == ("embedding",)
    assert runs[-1].others == ("head",)
    for index, stage in enumerate(found.stages):
        assert sorted(name for run in runs if run.stage == index for name in run.layers) == sorted(stage.layers)


def test_embedding_and_head_are_chunks_where_blocks_come_out_even_only_with_them() -> None:
    fixed = {"pp": 2, "chunks": 4, "schedule": "interleaved"}
    runs = deployed(plan(fixed, layers=6, schedule="interleaved")).runs
    assert runs[0].layers == ("embedding",)
    assert runs[-1].layers == ("head",)
    assert [run.blocks for run in runs][1:-1] == [(block,) for block in range(6)]
