"""Flags for what changes a model but not its cost, and the micro-batch where ranks of a block share it."""

from typing import Any

import pytest
from attrs import evolve

import nest
from frameworks_tests.plans import DENSE, SPARSE, problem
from nest.errors import InputError
from nest.formulate.model import resolve_model
from nest.hooks.architectures import architecture_of
from nest.hooks.registry import registry
from nest.io import read_mapping_text
from nest_frameworks.limits import like_llama
from nest_frameworks.limits.megatron import model_obstacles
from nest_frameworks.megatron.flags import export
from nest_frameworks.megatron.model_flags import detail_flags, left_out, model_flags
from nest_frameworks.megatron.notation import given_flags

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def details(source: Any) -> tuple[dict[str, Any], str]:
    """The flags, and what is told of what they leave out."""
    model = architecture_of(source)
    assert model is not None
    return dict(given_flags(detail_flags(source, model))), " ".join(left_out(source, model))


def configured(name: str, **changes: Any) -> tuple[dict[str, Any], str]:
    return details({**resolve_model(name, None), **changes})


def test_rotary_positions_and_norms_are_those_of_the_configuration() -> None:
    flags, told = configured("llama-3-8b", rope_theta=500000.0, rms_norm_eps=1e-6, initializer_range=0.01)
    assert flags["--rotary-base"] == 500000
    assert isinstance(flags["--rotary-base"], int)
    assert (flags["--norm-epsilon"], flags["--init-method-std"]) == (1e-6, 0.01)
    assert flags["--hidden-dropout"] == flags["--attention-dropout"] == 0
    assert told == ""


def test_the_base_of_rotary_positions_stands_in_rope_parameters_of_transformers_5() -> None:
    source = {key: value for key, value in resolve_model("llama-3-8b", None).items() if key != "rope_theta"}
    flags, told = details({**source, "rope_parameters": {"rope_type": "default", "rope_theta": 250000.0}})
    assert flags["--rotary-base"] == 250000
    assert "--rotary-base" not in told


SMALL = {
    "vocab_size": 96,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}


def test_squared_relu_has_a_flag_and_other_activations_are_told() -> None:
    flags, told = details({**SMALL, "model_type": "arcee"})
    assert flags["--squared-relu"] is True
    assert "activation" not in told
    flags, told = details({**SMALL, "model_type": "apertus"})
    assert "--squared-relu" not in flags
    assert "activation is 'xielu'" in told


@pytest.mark.parametrize("family", ["gemma", "granite"])
def test_factors_that_no_flag_says_are_an_obstacle(family: str) -> None:
    model = architecture_of({**SMALL, "model_type": family})
    assert model is not None
    (why,) = model_obstacles(model, 128)
    assert "factors scale" in why
    assert not like_llama(model)


def test_what_nobody_says_is_told() -> None:
    flags, told = details({"transformer": dict(DENSE)})
    assert set(flags) == {"--hidden-dropout", "--attention-dropout"}
    assert all(flag in told for flag in ("--rotary-base", "--norm-epsilon", "--init-method-std"))
    assert "# " + told + "." in export(nest.evaluate(problem({"dp": 16})))["megatron_flags.sh"]


YARN = {"factor": 4.0, "original_max_position_embeddings": 32768}
YARN_FLAGS = {
    "--position-embedding-type": "yarn",
    "--rotary-scaling-factor": 4.0,
    "--yarn-original-max-position-embeddings": 32768,
}


@pytest.mark.parametrize(
    ("name", "scaling", "flags"),
    [
        ("llama-3-8b", {"rope_type": "llama3", **LLAMA3}, {"--use-rope-scaling": True}),
        ("llama-3-8b", {"rope_type": "llama3", **LLAMA3, "factor": 32.0}, None),
        ("llama-3-8b", {"type": "linear", "factor": 4.0}, {"--rotary-seq-len-interpolation-factor": 4}),
        ("llama-3-8b", {"type": "linear", "factor": 2.5}, None),
        ("llama-3-8b", {"type": "yarn", "factor": 4.0}, None),
        ("llama-3-8b", {"type": "yarn", **YARN}, YARN_FLAGS),
        (
            "llama-3-8b",
            {"rope_type": "yarn", **YARN, "mscale": 0.7, "mscale_all_dim": 0.5, "beta_fast": 16},
            {**YARN_FLAGS, "--mscale": 0.7, "--mscale-all-dim": 0.5, "--yarn-beta-fast": 16},
        ),
        ("llama-3-8b", {"type": "yarn", **YARN, "attention_factor": 1.2}, None),
        ("llama-3-8b", {"type": "yarn", **YARN, "truncate": False}, None),
        ("llama-3-8b", {"rope_type": "default"}, {}),
        ("llama-3-8b", None, {}),
        (
            "deepseek-v3",
            {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0},
            {"--rope-type": "yarn", "--rotary-scaling-factor": 40, "--mscale": 1.0, "--mscale-all-dim": 1.0},
        ),
        ("deepseek-v3", {"type": "yarn", "factor": 40, "original_max_position_embeddings": 8192}, None),
    ],
)
def test_stretched_positions_have_flags_or_are_told(name: str, scaling: Any, flags: dict[str, Any] | None) -> None:
    plain, _ = configured(name, rope_scaling=None)
    found, told = configured(name, rope_scaling=scaling)
    assert found == plain | (flags or {})
    assert ("rope_scaling" in told) == (flags is None)


def test_routing_is_that_of_the_configuration() -> None:
    flags, told = configured(
        "deepseek-v3", n_group=8, topk_group=4, routed_scaling_factor=2.5, num_nextn_predict_layers=1
    )
    assert {flag: flags.get(flag) for flag in flags if "router" in flag} == {
        "--moe-router-score-function": "sigmoid",
        "--moe-router-enable-expert-bias": True,
        "--moe-router-num-groups": 8,
        "--moe-router-group-topk": 4,
        "--moe-router-topk-scaling-factor": 2.5,
    }
    assert "num_nextn_predict_layers" in told
    assert "--moe-router-pre-softmax" in configured("qwen3-30b-a3b", norm_topk_prob=False)[0]
    assert "--moe-router-pre-softmax" not in configured("qwen3-30b-a3b", norm_topk_prob=True)[0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("deepseek-v3.2", "indexer"),
        ("gemma-2-9b", "norms follow"),
        ("olmo-2-7b", "norms follow"),
        ("llama-4-scout", "--qk-layernorm"),
        ("llama-4-maverick", "differ in their attention"),
        ("gpt-neox-20b", "side by side"),
        ("falcon-7b", "side by side"),
        ("command-r", "side by side"),
        ("minimax-m2", "--qk-layernorm"),
        ("hunyuan-7b", "--qk-layernorm"),
        ("ernie-4.5-21b-a3b", "softmax router"),
    ],
)
def test_blocks_that_flags_do_not_build_are_refused(name: str, reason: str) -> None:
    model = architecture_of(resolve_model(name, None))
    assert model is not None
    assert any(reason in obstacle for obstacle in model_obstacles(model, 4096))
    with pytest.raises(InputError, match="cannot be trained with Megatron-LM"):
        model_flags(model, 4096)


@pytest.mark.longer
def test_gpt_oss_is_for_frameworks_whose_recipes_build_it() -> None:
    asked = {**problem({"dp": 16}), "model": "gpt-oss-20b"}
    found = nest.evaluate(asked)
    assert "megatron-bridge" in (found.runs_on or ())
    for name in ("megatron", "nemo", "verl", "ms-swift"):
        with pytest.raises(InputError, match="learned sinks"):
            registry().exporters()[name].export(found)


def test_one_expert_a_token_is_weighed_before_it_is_chosen() -> None:
    """Megatron Core refuses it otherwise (`TransformerConfig.__post_init__`)."""
    assert "--moe-router-pre-softmax" not in details({"transformer": dict(SPARSE)})[0]
    assert "--moe-router-pre-softmax" in details({"transformer": {**SPARSE, "top_k": 1}})[0]


def test_other_activations_and_dropout_are_told() -> None:
    assert "'relu'" in configured("llama-3-8b", hidden_act="relu")[1]
    flags, told = configured("gpt2", attn_pdrop=0.1, resid_pdrop=0.2)
    assert (flags["--attention-dropout"], flags["--hidden-dropout"]) == (0.1, 0.2)
    assert "masks" in told


@pytest.mark.parametrize("strange", [True, "0; rm -rf /", [1], {}, None])
def test_what_is_no_number_is_no_flag(strange: Any) -> None:
    flags, _ = configured("llama-3-8b", rope_theta=strange, rms_norm_eps=strange, attention_dropout=strange)
    assert not {"--rotary-base", "--norm-epsilon"} & set(flags)


@pytest.mark.parametrize("name", ["megatron", "megatron-bridge"])
def test_ranks_that_share_a_micro_batch_have_their_part_of_it(name: str) -> None:
    """With `batch` a block's ranks divide the samples: Megatron-LM counts those of one rank."""
    asked = problem({"tp": 2, "sp": True, "batch": 2, "pp": 2, "dp": 2, "micro_batch": 4, "zero": 1})
    document = nest.evaluate({**asked, "strategies": {"batch": [1, 2]}})
    assert document.micro_batches == 32 // (2 * 4)
    text = next(text for file, text in registry().exporters()[name].export(document).items() if file.endswith("yaml"))
    told = read_mapping_text(text, "flags.yaml")
    found = told["MODEL_ARGS"]["--micro-batch-size"] if name == "megatron" else told["train"]["micro_batch_size"]
    assert found == 2
    assert found * 4 * document.micro_batches == 32
    assert export(evolve(document)) == export(document)
