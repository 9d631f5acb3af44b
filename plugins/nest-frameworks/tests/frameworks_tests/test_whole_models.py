"""A model of the catalogue is exported as its configuration is: nothing that exporters write is left out of it."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import nest
import nest_frameworks
from frameworks_tests.plans import problem
from nest.catalogue import library_models
from nest.errors import InputError, InputErrors
from nest.formulate.model import resolve_model
from nest.hooks.architectures import architecture_of, hybrid_of
from nest.hooks.registry import registry
from nest.spec.architecture import Architecture, GroupedQueryAttention, MixtureOfExperts
from nest_frameworks.configurations import DEFAULTS, configuration
from nest_frameworks.megatron.model_flags import detail_flags, left_out

PUBLISHED = {
    "bert-large": "google-bert--bert-large-uncased",
    "deepseek-v3": "deepseek-ai--DeepSeek-V3",
    "deepseek-v3.2": "deepseek-ai--DeepSeek-V3.2",
    "gpt-oss-20b": "openai--gpt-oss-20b",
    "gpt2": "openai-community--gpt2",
    "gpt2-xl": "openai-community--gpt2-xl",
    "gpt3-175b": "gpt3-175b-like",
    "llama-2-7b": "meta-llama--Llama-2-7b-hf",
    "llama-2-70b": "meta-llama--Llama-2-70b-hf",
    "llama-3-70b": "meta-llama--Meta-Llama-3-70B",
    "llama-4-scout": "meta-llama--Llama-4-Scout-17B-16E-Instruct",
    "llama-3.1-8b": "meta-llama--Meta-Llama-3.1-8B",
    "llama-3.1-405b": "meta-llama--Meta-Llama-3.1-405B",
    "mixtral-8x7b": "mistralai--Mixtral-8x7B-v0.1",
    "qwen1.5-moe-a2.7b": "Qwen--Qwen1.5-MoE-A2.7B",
    "qwen2-57b-a14b": "Qwen--Qwen2-57B-A14B",
    "qwen3-0.6b": "Qwen--Qwen3-0.6B",
    "qwen3-30b-a3b": "Qwen--Qwen3-30B-A3B",
    "qwen3-8b": "Qwen--Qwen3-8B",
}
"""Configurations of the shared test data that are those of models of the catalogue."""

QUICK = (
    "bert-large",
    "deepseek-v3.2",
    "gpt-oss-20b",
    "gpt2",
    "llama-3-70b",
    "llama-4-scout",
    "mixtral-8x7b",
    "qwen3-8b",
)
"""One of each kind; the others are exported by `pytest -m slow`."""

ALWAYS = (
    {"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"},
    {"initializer_range"},
    {"hidden_act", "activation_function"},
    {"attention_dropout", "attn_pdrop", "attention_probs_dropout_prob"},
)
ROTARY = ({"rope_theta"}, {"rope_scaling", "rope_parameters"})
ROUTED = ({"norm_topk_prob"}, {"router_aux_loss_coef", "aux_loss_alpha"})
BIASED_ROUTER = (
    {"norm_topk_prob"},
    {"scoring_func"},
    {"topk_method"},
    {"routed_scaling_factor"},
    {"num_nextn_predict_layers"},
)
UNLESS_PLAIN = {"model_type", "partial_rotary_factor", "resid_pdrop", "hidden_dropout"}
"""What exporters read beside: those that few configurations have."""


def is_mixture(model: Architecture) -> bool:
    return any(isinstance(block.feed_forward, MixtureOfExperts) for block in (*model.blocks, *model.hybrid))


def needed(config: Mapping[str, Any], model: Architecture) -> list[set[str]]:
    """Of each set a configuration of this kind has a key."""
    wanted = [*ALWAYS]
    attention = (*model.blocks, *model.hybrid)[0].attention
    if not isinstance(attention, GroupedQueryAttention) or (attention.rotary and not model.positions):
        wanted += ROTARY
    if is_mixture(model):
        # The routing of Mixtral and others has no keys: it is always the same.
        qwen = str(config["model_type"]).startswith("qwen")
        # Qwen3.5 always divides the chosen weights by their sum: its class has no `norm_topk_prob`.
        routed = ROUTED[1:] if str(config["model_type"]).startswith("qwen3_5") else ROUTED
        wanted += BIASED_ROUTER if "n_routed_experts" in config else routed if qwen else []
    return wanted


def exported(model: Any, zero: int = 1) -> dict[str, dict[str, str] | str]:
    """The files of every exporter, or why it takes no such plan: torchtitan shards all, most nothing but states."""
    document = nest.evaluate({**problem({"dp": 16, "zero": zero}), "model": model})
    files: dict[str, dict[str, str] | str] = {}
    for name, exporter in registry().exporters().items():
        try:
            files[name] = dict(exporter.export(document))
        except (InputError, InputErrors) as error:
            files[name] = str(error)
    return files


@pytest.mark.longer
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(PUBLISHED)]
)
def test_a_name_and_its_configuration_are_exported_alike(shared: Path, name: str) -> None:
    path = shared / "hf_configs" / f"{PUBLISHED[name]}.json"
    config = json.loads(path.read_text("utf-8"))
    if "text_config" in config:
        config["architectures"] = ["Llama4ForCausalLM"]
    taken = set()
    for zero in (1, 3):
        by_name = exported(name, zero)
        assert by_name == exported(config, zero)
        taken |= {exporter for exporter, files in by_name.items() if isinstance(files, dict)}
    assert {"deepspeed", "torchtitan"} <= taken
    assert ("maxtext" in taken) == (name != "bert-large")
    assert ("megatron" in taken) == (name not in ("bert-large", "deepseek-v3.2", "gpt-oss-20b", "llama-4-scout"))


@pytest.mark.parametrize("name", sorted(library_models()))
def test_the_catalogue_says_all_that_exporters_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nest_frameworks.configurations.DEFAULTS", {})
    config = resolve_model(name, None)
    assert isinstance(config, dict)
    model = architecture_of(config) or hybrid_of(config)
    assert model is not None
    assert [keys for keys in needed(config, model) if not keys & configuration(config).keys()] == []
    # Megatron-LM's flags say no hybrid.
    assert not model.blocks or [told for told in left_out(config, model) if "says nothing of" in told] == []


def test_every_key_that_exporters_read_is_known_here() -> None:
    """Whoever reads one more key says above which models of the catalogue must have it."""
    folder = Path(nest_frameworks.__file__).parent
    texts = [path.read_text("utf-8") for path in sorted(folder.rglob("*.py"))]
    text = "".join(each for each in texts if "nest_frameworks.configurations import" in each)
    read = set(re.findall(r'\bconfig\.get\("(\w+)"', text))
    for arguments in re.findall(r'_number\((?:config|_rope\(config\))((?:, "\w+")+)\)', text):
        read |= set(re.findall(r'"(\w+)"', arguments))
    known = set().union(UNLESS_PLAIN, *ALWAYS, *ROTARY, *ROUTED, *BIASED_ROUTER)
    assert read <= known
    assert len(read) > 10


FAMILIES = {str(dict(resolve_model(name, None))["model_type"]) for name in library_models()}


def first_of(family: str) -> dict[str, Any]:
    models = (resolve_model(name, None) for name in library_models())
    return next(model for model in models if isinstance(model, dict) and model["model_type"] == family)


@pytest.mark.parametrize("family", sorted(DEFAULTS.keys() & FAMILIES))
def test_what_a_configuration_leaves_out_is_what_transformers_takes(family: str) -> None:
    """A key that is there counts, even where it says nothing; one that is not is the family's default."""
    bare = {key: value for key, value in first_of(family).items() if key not in DEFAULTS[family]}
    model = architecture_of(bare)
    assert model is not None
    flags = detail_flags(bare, model)
    assert flags == detail_flags({**bare, **DEFAULTS[family]}, model)
    assert flags["--norm-epsilon"] is not None
    assert detail_flags({**bare, "initializer_range": None}, model)["--init-method-std"] is None
