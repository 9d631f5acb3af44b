"""No plan is priced below its own replay (PROBLEM.md section 4, "Price and replay")."""

from types import SimpleNamespace
from typing import Any

import pytest

import nest
from nest.instance import Pass
from nest.plan.makespan import ChunkSeconds
from nest.plan.priced import replayed
from nest.schedules.one_forward_one_backward import OneForwardOneBackward
from nest.spec import PlanDocument

MODEL = {
    "layers": 16,
    "hidden": 4096,
    "ffn": 14336,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "vocab": 128256,
    "gated_mlp": True,
}


def four_devices(schedule: list[str], memory: str = "100 GB", layers: int = 16, **training: Any) -> dict[str, Any]:
    """A model whose head takes as long as several blocks, on four devices of one node."""
    return {
        "nest": 1,
        "model": {"transformer": {**MODEL, "layers": layers}},
        "training": {
            "global_batch": 8,
            "sequence_length": 32768,
            "schedule": schedule,
            "micro_batch": [1],
            "loss": "fused",
            **training,
        },
        "cluster": {
            "device": "h100-sxm",
            "memory": memory,
            "levels": [{"name": "node", "fanout": 4, "bandwidth": "450 GB/s", "link": "nvlink"}],
        },
        "fixed": {"pp": 4, "tp": 1, "cp": 1, "recompute": "none"},
    }


def blocks_of_chunks(plan: PlanDocument) -> list[int]:
    """Transformer blocks of each chunk, in pipeline order."""
    rounds = zip(*(stage.chunks or () for stage in plan.stages), strict=True)
    return [sum(layer.startswith("layers.") for layer in chunk) for each in rounds for chunk in each]


@pytest.mark.longer
@pytest.mark.parametrize(("memory", "layers"), [("100 GB", 16), ("105 GB", 16), ("140 GB", 18), ("140 GB", 22)])
def test_a_plan_of_chunks_takes_what_its_replay_does(memory: str, layers: int) -> None:
    """With 100 GB stages had chunks of 1, 1, 1 and 15 blocks: 11.42 s stated, 12.84 s replayed."""
    plan = nest.solve(four_devices(["1f1b", "interleaved"], memory, layers))
    replay = nest.simulate(plan)
    assert plan.batch_time is not None
    assert plan.batch_time == pytest.approx(max(replay.batch_time, replay.closed_form), rel=1e-9)
    alone = nest.solve(four_devices(["1f1b"], memory, layers)).batch_time
    assert alone is None or plan.batch_time <= alone
    if plan.schedule == "interleaved":
        first, *inner, last = blocks_of_chunks(plan)
        assert max(inner) - min(inner) <= 1
        assert max(first, last) <= min(inner) + 1
    assert nest.check(plan).ok


def test_a_closed_form_alone_is_asked_for() -> None:
    """GPipe's last stage, with the head, has other shares of forward and backward passes than its first one."""
    asked = four_devices(["gpipe"], "1 TB", 6)
    replayed, stated = nest.solve(asked), nest.solve(four_devices(["gpipe"], "1 TB", 6, price="closed-form"))
    assert replayed.batch_time is not None
    assert stated.batch_time is not None
    assert nest.simulate(stated).batch_time >= stated.batch_time
    assert replayed.batch_time >= stated.batch_time
    assert replayed.batch_time == pytest.approx(
        max(nest.simulate(replayed).batch_time, nest.simulate(replayed).closed_form), rel=1e-9
    )


def test_a_profile_has_closed_forms_of_the_literature_and_replays_of_others() -> None:
    """Two stages, forward 1 and 0.001 s, backward 0.001 and 1 s, 8 micro-batches: 9.009 s stated, 16.002 s replayed."""
    none = [0.0, 0.0]
    mode = {**dict.fromkeys(("extra", "first", "more", "peak"), none), "stash_inputs": False}
    group = {"ranks": [0], **dict.fromkeys(("weights", "gradients", "optimizer", "update"), none)}
    one = {"name": "one", "width": 1, "samples": 1, "forward": [1.0, 0.001], "backward": [0.001, 1.0], "degrees": {}}
    candidate = {**one, "state": {"dense": group}, "recompute": {"none": mode}, "edge_bytes": [0.0]}
    asked = {
        "nest": 1,
        "profile": {"layers": ["a", "b"], "edges": [[0, 1]], "candidates": [candidate]},
        "cluster": {"memory": 1.0, "levels": [{"fanout": 2, "bandwidth": 1e9, "latency": 0.0}]},
        "fixed": {"pp": 2},
    }
    stated = nest.solve({**asked, "training": {"global_batch": 8, "schedule": "gpipe"}})
    replayed = nest.solve({**asked, "training": {"global_batch": 8, "schedule": "gpipe", "price": "replay"}})
    assert (stated.batch_time, replayed.batch_time) == (pytest.approx(9.009), pytest.approx(16.002))
    assert replayed.status == "optimal"


def test_an_order_of_its_own_is_replayed_whatever_is_inherited() -> None:
    """`suffices` of 1F1B says nothing of an order in which each micro-batch runs all alone."""

    class Alone(OneForwardOneBackward):
        def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
            return tuple(Pass(kind, each) for each in range(micro_batches) for kind in ("forward", "backward"))

    stage = SimpleNamespace(grown_passes=(ChunkSeconds(1.0, 2.0, 1.0, 0.0, 0.0),), hidden=0.0, sync=0.0)
    stages: Any = [stage, stage]
    assert replayed(OneForwardOneBackward(), 4, stages) == 0.0
    assert replayed(Alone(), 4, stages) == pytest.approx(24.0)
