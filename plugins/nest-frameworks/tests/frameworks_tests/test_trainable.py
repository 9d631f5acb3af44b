"""Plans that freeze a part of the model: no framework is launched that would train all of it."""

from typing import Any

import pytest

import nest
from frameworks_tests.plans import DENSE, SPARSE, plan
from nest.errors import InputError
from nest.io import read_mapping_text

ALL_LINEAR = {"lora": {"rank": 8, "targets": "all-linear"}}
QUERIES = {"lora": {"rank": 8}}
DECIDED = {"tp": 1, "pp": 1, "dp": 16, "micro_batch": 1, "zero": 0, "recompute": "none"}


@pytest.mark.longer
@pytest.mark.parametrize("name", ["megatron", "torchtitan", "maxtext", "galvatron", "pytorch"])
@pytest.mark.parametrize("trainable", [QUERIES, "head"])
def test_frameworks_that_train_everything_refuse_it(name: str, trainable: Any) -> None:
    document = plan(DECIDED, trainable=trainable)
    assert name not in (document.runs_on or ())
    with pytest.raises(InputError, match=r"training\.trainable"):
        nest.export(document, name)


@pytest.mark.longer
def test_megatron_bridge_is_told_the_adapters() -> None:
    written = nest.export(plan(DECIDED, trainable=ALL_LINEAR), "megatron-bridge")["megatron_bridge.yaml"]
    adapters = read_mapping_text(written, "overlay.yaml")["peft"]
    assert adapters["dim"] == 8
    assert len(adapters["target_modules"]) == 7
    fused = {"lora": {"rank": 8, "targets": ["qkv_proj", "gate_up_proj"]}}
    written = nest.export(plan(DECIDED, trainable=fused), "megatron-bridge")["megatron_bridge.yaml"]
    adapters = read_mapping_text(written, "overlay.yaml")["peft"]
    assert adapters["_target_"] == "megatron.bridge.peft.lora.LoRA"
    assert adapters["target_modules"] == ["linear_qkv", "linear_fc1"]
    # A recipe that adapts is set back where all is trained.
    written = nest.export(plan(DECIDED), "megatron-bridge")["megatron_bridge.yaml"]
    assert read_mapping_text(written, "overlay.yaml")["peft"] is None


@pytest.mark.longer
@pytest.mark.parametrize(
    ("model", "trainable", "reason"),
    [
        (DENSE, QUERIES, "come together"),
        (DENSE, "head", "freezes all but adapters"),
        (DENSE, {"lora": {"rank": 8, "targets": ["o_proj", "lm_head"]}}, "no adapter beside lm_head"),
        (SPARSE, ALL_LINEAR, "experts"),
        ({**DENSE, "gated_mlp": False}, {"lora": {"rank": 8, "targets": ["up_proj", "o_proj"]}}, "together"),
        ({**DENSE, "gated_mlp": False}, ALL_LINEAR, "gated network"),
    ],
)
def test_megatron_bridge_refuses_other_adapters(model: Any, trainable: Any, reason: str) -> None:
    document = plan(DECIDED, model, trainable=trainable)
    with pytest.raises(InputError, match=reason):
        nest.export(document, "megatron-bridge")


@pytest.mark.longer
@pytest.mark.parametrize(
    ("name", "file"), [("accelerate", "accelerate_plan.py"), ("deepspeed", "deepspeed_trained.py")]
)
def test_scripts_are_told_how_much_is_trained(name: str, file: str) -> None:
    decided = {**DECIDED, "zero": 1} if name == "deepspeed" else DECIDED
    text = nest.export(plan(decided, trainable=QUERIES), name)[file]
    said: dict[str, Any] = {}
    exec(text[text.index("def check_trained") :], said)

    class Weight:
        def __init__(self, size: int, trained: bool) -> None:
            self.size, self.requires_grad = size, trained

        def numel(self) -> int:
            return self.size

    class Model:
        def __init__(self, trained: int) -> None:
            self.weights = [Weight(10_000, trained=False), Weight(trained, trained=True)]

        def parameters(self) -> list[Weight]:
            return self.weights

    # 8 blocks of width 512: queries to 512 channels, values to 4 heads of 64.
    count = 8 * 8 * (512 + 512 + 512 + 256)
    said["check_trained"](Model(count))
    with pytest.raises(ValueError, match=f"trains {count} parameters"):
        said["check_trained"](Model(count + 1))
    assert file.replace("_plan", "_trained") not in nest.export(plan(decided), name)


@pytest.mark.longer
def test_pipelines_of_deepspeed_are_refused() -> None:
    document = plan({**DECIDED, "pp": 2, "dp": 8}, trainable=QUERIES)
    with pytest.raises(InputError, match="gradients of all that passes between stages"):
        nest.export(document, "deepspeed")
