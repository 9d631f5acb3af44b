"""Megatron FSDP: what is read of flags that are left out, and what is written so that no release decides it."""

import re
from itertools import product

import pytest

from frameworks_tests.test_megatron_releases import LAYOUT, flags_of, plan, read
from nest.io import read_mapping_text
from nest_frameworks.megatron import bridge
from nest_frameworks.megatron.flags import export
from nest_frameworks.megatron.reading.read import read_megatron

SUMS, SENT = "--megatron-fsdp-main-grads-dtype", "--megatron-fsdp-grad-comm-dtype"
STRATEGIES = {None: 3, "no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}


@pytest.mark.parametrize(("strategy", "distributed"), [*product(STRATEGIES, (True, False))])
def test_megatron_fsdp_shards_everything_unless_told(strategy: str | None, distributed: bool) -> None:
    said = [] if strategy is None else ["--data-parallel-sharding-strategy", strategy]
    found = read("--use-megatron-fsdp", SUMS, "fp32", *said, *(["--use-distributed-optimizer"] if distributed else []))
    assert found.settings["fixed"]["zero"] == STRATEGIES[strategy]
    assumed = [note for note in found.notes if "Megatron-Core 0.19" in note]
    assert len(assumed) == (strategy is None)


def test_the_old_name_of_megatron_fsdp_shards_nothing_unless_told() -> None:
    assert read("--use-custom-fsdp").settings["fixed"]["zero"] == 0
    told = read("--use-custom-fsdp", "--data-parallel-sharding-strategy", "optim_grads")
    assert told.settings["fixed"]["zero"] == 2
    # Later releases print it beside the new name.
    assert read("--use-custom-fsdp", "--use-megatron-fsdp").settings["fixed"]["zero"] == 3


@pytest.mark.parametrize(("said", "zero"), [("", 0), ("data_parallel_sharding_strategy: no_shard", 0),
                                            ("data_parallel_sharding_strategy: optim_grads_params", 3)])  # fmt: skip
def test_megatron_bridge_s_own_default_shards_nothing(said: str, zero: int) -> None:
    text = f"model: {{tensor_model_parallel_size: 1}}\nddp:\n  use_megatron_fsdp: true\n  {said}\n"
    assert bridge.read(text).settings["fixed"]["zero"] == zero


@pytest.mark.longer
@pytest.mark.parametrize(("gradients", "word"), [(None, "fp32"), ("bf16", "bf16")])
def test_megatron_fsdp_is_told_in_what_it_adds_up_gradients(gradients: str | None, word: str) -> None:
    training = {"stack": "megatron-core"} | ({} if gradients is None else {"gradients": gradients})
    made = plan(training, {"dp": 16, "zero": 3})
    flags = flags_of(made)
    assert (flags[SUMS], flags[SENT]) == (word, word)
    found = read_megatron(export(made)["megatron_flags.sh"])
    assert found.settings["training"].get("gradients") == gradients
    assert not [note for note in found.notes if "megatron-fsdp" in note or "not know" in note]
    assert not {SUMS, SENT} & flags_of(plan(training, LAYOUT)).keys()
    if gradients is None:
        overlay = read_mapping_text(bridge.export(made)["megatron_bridge.yaml"], "overlay.yaml")
        made = {"_call_": False, "_target_": "torch.float32"}  # Text would stay text.
        assert overlay["ddp"]["megatron_fsdp_main_grads_dtype"] == made


@pytest.mark.parametrize(
    ("said", "gradients", "told"),
    [
        ("", "bf16", "in bf16"),
        (f"{SUMS} auto", "bf16", "in bf16"),
        (f"{SUMS} fp32", None, ""),
        (f"{SUMS} bf16", "bf16", ""),
        (f"{SUMS} fp32 --grad-reduce-in-bf16", None, ""),
        ("--grad-reduce-in-bf16", "bf16", ""),
        (f"{SUMS} fp32 {SENT} bf16", None, "not priced"),
    ],
)
def test_gradients_of_megatron_fsdp_are_read(said: str, gradients: str | None, told: str) -> None:
    found = read("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", said)
    assert found.settings["training"].get("gradients") == gradients
    notes = [note for note in found.notes if re.search("megatron-fsdp", note)]
    assert len(notes) == bool(told)
    assert all(told in note for note in notes)
