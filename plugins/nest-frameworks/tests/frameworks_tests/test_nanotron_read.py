"""What nanotron's files run."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import nest
from frameworks_tests.plans import DENSE, LEVELS, SPARSE, assert_same_run, on_stack, plan, read_back
from frameworks_tests.random_plans import plans
from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.formulate.from_flags import start
from nest.hooks.pipelines import deployed
from nest.spec import PlanDocument, Problem
from nest_frameworks.limits import Asked
from nest_frameworks.limits.meshes import nanotron
from nest_frameworks.nanotron import YAML_FILE, export, read

TINY = """
# Keys as in examples/config_tiny_llama.yaml of huggingface/nanotron.
checkpoints: {checkpoint_interval: 10, checkpoints_path: checkpoints}
data_stages:
- name: Stable Training Stage
  start_training_step: 1
  data: {num_loading_workers: 1, seed: 42}
general: {project: debug, run: tiny_llama, seed: 42, step: null}
lighteval: null
logging: {log_level: info}
model:
  ddp_bucket_cap_mb: 25
  dtype: bfloat16
  init_method: {std: 0.025}
  make_vocab_size_divisible_by: 1
  model_config:
    bos_token_id: 1
    hidden_act: silu
    hidden_size: 512
    initializer_range: 0.02
    intermediate_size: 1536
    is_llama_config: true
    max_position_embeddings: 256
    num_attention_heads: 8
    num_hidden_layers: 8
    num_key_value_heads: 4
    pad_token_id: null
    rms_norm_eps: 1.0e-05
    rope_scaling: null
    tie_word_embeddings: true
    vocab_size: 4096
optimizer:
  accumulate_grad_in_fp32: true
  clip_grad: 1.0
  learning_rate_scheduler: {learning_rate: 0.0003, lr_warmup_steps: 2}
  optimizer_factory: {adam_beta1: 0.9, name: adamW, torch_adam_is_fused: true}
  weight_decay: 0.01
  zero_stage: 1
parallelism:
  dp: 4
  expert_parallel_size: 1
  pp: 2
  pp_engine: 1f1b
  recompute_layer: true
  tp: 2
  tp_linear_async_communication: true
  tp_mode: REDUCE_SCATTER
tokenizer: {tokenizer_name_or_path: gpt2}
tokens:
  batch_accumulation_per_replica: 3
  limit_val_batches: 0
  micro_batch_size: 2
  sequence_length: 256
  train_steps: 15
  val_check_interval: -1
"""


def test_a_file_is_read_whole_and_priced(tmp_path: Path) -> None:
    found = read(TINY)
    assert found.notes == ()
    assert found.devices == 16
    assert found.settings["training"] == {
        "global_batch": 24,
        "sequence_length": 256,
        "tokens": 24 * 256 * 15,
        "precision": "bf16",
        "optimizer": "adamw",
        "gradients": "fp32",
        "stack": "nanotron",
        "overlap": {"tensor": True},
    }
    written, cluster = tmp_path / "run.yaml", tmp_path / "cluster.json"
    written.write_text(TINY)
    cluster.write_text(json.dumps({"cluster": {"device": "h100-sxm", "levels": [dict(level) for level in LEVELS]}}))
    started = start(written, "nanotron", cluster=str(cluster))
    shape = deployed(nest.evaluate(started.problem))
    assert (shape.tp, shape.stages, shape.data_parallel, shape.micro_batch, shape.micro_batches) == (2, 2, 4, 2, 3)
    assert (shape.zero, shape.recompute, shape.sequence_parallel) == ((1, 1), ("full", "full"), True)
    assert started.opened("nanotron").fixed is None


def test_blocks_are_split_by_products() -> None:
    """Of Llama 3 8B over 8 stages, five on the first and four on the second (nanotron's own example)."""
    widths = {
        "hidden_size: 512": 4096,
        "intermediate_size: 1536": 14336,
        "num_hidden_layers: 8": 32,
        "size: 4096": 128256,
    }
    text = TINY.replace("pp: 2", "pp: 8")
    for line, value in widths.items():
        text = text.replace(line, f"{line.partition(':')[0]}: {value}")
    stages = read(text).settings["fixed"]["stages"]
    assert stages[:2] == [5, 4]
    assert sum(stages) == 32


def test_what_is_left_out_has_nanotrons_default() -> None:
    text = "parallelism: {dp: 2, pp: 2, tp: 2}\ntokens: {micro_batch_size: 1, sequence_length: 64}\n"
    found = read(text + "model: {model_config: {is_qwen2_config: true, attention_bias: true}}\n")
    assert found.settings["model"]["model_type"] == "qwen2"
    assert found.settings["fixed"] == {
        "dp": 2,
        "tp": 2,
        "pp": 2,
        "cp": 1,
        "sp": False,
        "zero": 0,
        "micro_batch": 1,
        "recompute": "none",
        "schedule": "gpipe",
        "stages": [17, 15],
        "rank_order": "dp-inner",
    }
    assert found.settings["training"]["overlap"] == {"tensor": False}
    assert any("the model is the problem's" in note for note in read(text).notes)


@pytest.mark.parametrize(
    ("line", "other", "told"),
    [
        ("zero_stage: 1", "zero_stage: 3", "nanotron has 0 and 1"),
        ("expert_parallel_size: 1", "expert_parallel_size: 2", "nanotron's experts"),
        ("pp: 2", "pp: 20", "there are 8 layers"),
        ("pp: 2", "pp: 8", "without layers"),
        ("pp_engine: 1f1b", "pp_engine: zigzag", "nest knows 1f1b, afab"),
        ("micro_batch_size: 2", "micro_batch: 2", "must be given"),
        ("tokens:", "letters:", "sections, parallelism and tokens"),
    ],
)
def test_mistakes_are_told(line: str, other: str, told: str) -> None:
    assert line in TINY
    with pytest.raises(InputError, match=told):
        read(TINY.replace(line, other))


def test_launches_and_keys_that_do_not_fit_are_told() -> None:
    with pytest.raises(InputError, match="make 16 ranks, and the launch has 8"):
        read(TINY, LaunchOptions(1, 8))
    found = read(TINY.replace("hidden_act: silu", "hidden_act: silu\n    z_loss_enabled: true\n    depth: 3"))
    assert [note.split()[0] for note in found.notes] == ["model.model_config.z_loss_enabled", "these"]
    assert "model.model_config.depth" in found.notes[1]


def there_and_back(document: PlanDocument, folder: Path) -> bool:
    """Whether the file gives the plan back; false: there is none."""
    try:
        text = export(document)[YAML_FILE]
    except InputError:
        return False
    found = read_back(document, text, folder / YAML_FILE, "nanotron")
    used, size = (document.summary[key] for key in ("devices_used", "devices"))
    assert found.notes == ((f"the run uses {used} of {size} devices.",) if used < size else ())
    assert_same_run(document, nest.evaluate(found.problem, fix={"rank_order": deployed(document).rank_order}))
    return True


@pytest.mark.longer
@settings(max_examples=10)
@given(plans())
def test_a_file_says_the_plan(tmp_path_factory: pytest.TempPathFactory, document: PlanDocument) -> None:
    there_and_back(on_stack(document, "nanotron"), tmp_path_factory.mktemp("files"))


@pytest.mark.longer
@pytest.mark.parametrize(
    ("fixed", "training"),
    [
        ({"dp": 16, "zero": 1}, {}),
        ({"dp": 8, "tp": 2, "sp": True, "recompute": "full"}, {"gradients": "fp32"}),
        ({"dp": 8, "tp": 2}, {"overlap": {"tensor": False}, "precision": "fp16", "gradients": "fp32"}),
        ({"dp": 4, "tp": 2, "sp": True, "pp": 2, "zero": 1, "stages": [5, 3]}, {"schedule": ["gpipe"]}),
        ({"dp": 4, "pp": 4, "stages": [3, 2, 2, 1]}, {"optimizer": "sgd", "precision": "fp32"}),
    ],
)
def test_every_decision_comes_back(fixed: dict[str, Any], training: dict[str, Any], tmp_path: Path) -> None:
    assert there_and_back(plan(fixed, DENSE, stack="nanotron", **training), tmp_path)


@pytest.mark.parametrize(
    ("fixed", "model", "told"),
    [
        ({"dp": 16, "zero": 2}, DENSE, "ZeRO stage 2"),
        ({"dp": 8, "tp": 2}, DENSE, "reduce-scatter only"),
        ({"dp": 8, "pp": 2, "stages": [3, 5]}, DENSE, "into 5, 3 blocks"),
        ({"dp": 2, "pp": 8}, DENSE, "fix pp"),
        ({"dp": 16}, SPARSE, "built like Llama"),
        ({"dp": 16}, {**DENSE, "head_dim": 32}, "built like Llama"),
    ],
)
def test_what_nanotron_cannot_run_is_refused(fixed: dict[str, Any], model: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        export(plan(fixed, model, stack="nanotron"))


def test_measured_layers_have_no_model_to_write() -> None:
    with pytest.raises(InputError, match="built like Llama"):
        nanotron(Asked.of(nest.io.structure({**plan({"dp": 16}).problem, "model": {"graph": "g.json"}}, Problem)))


@pytest.mark.longer
def test_plans_for_nanotron_have_its_cut() -> None:
    """Where pp is fixed; where it is not, nobody can tell which of its cuts is meant."""
    open_problem = {**plan({"dp": 8}, DENSE, stack="nanotron").problem, "search": {"target": "nanotron"}}
    found = nest.solve({**open_problem, "fixed": {"pp": 2}})
    assert [len(run.blocks) for run in deployed(found).runs] == [5, 3]
    assert export(found)
    assert deployed(nest.solve({**open_problem, "fixed": {}})).stages == 1
