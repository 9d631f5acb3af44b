"""Limits stand apart from what writes a framework's files; they allow what the tables there have, and no more."""

from collections.abc import Collection
from typing import Any

import pytest

from frameworks_tests.megatron_plans import MODELS
from frameworks_tests.plans import DENSE, SPARSE, problem
from nest.catalogue import library_models
from nest.deployment import Limits
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import Problem, Training
from nest.spec.constraints import parse
from nest_frameworks import accelerate, lightning, maxtext, nanotron
from nest_frameworks.limits import Asked, gradient_format
from nest_frameworks.limits.meshes import split
from nest_frameworks.megatron import bridge, training_flags
from nest_frameworks.megatron.model_flags import detail_flags, model_flags
from nest_frameworks.megatron.relatives import nemo, swift, verl
from nest_frameworks.megatron.relatives.dialect import Dialect
from nest_frameworks.trainers.names import WRITTEN

OPTIMIZERS = ("adam", "adamw", "adam-bf16", "adam-8bit", "sgd", "sgd-momentum", "lion", "muon", "adafactor")
PRECISIONS = ("fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")


def allowed(name: str, key: str, values: Collection[str], **training: str) -> set[str]:
    """Those of `values` of `training.key` that the framework's limits do not refuse."""
    exporter = registry().exporters()[name]
    found = set()
    for value in values:
        try:
            exporter.limits(structure(problem({"dp": 16}, **{**training, key: value}), Problem))  # type: ignore[attr-defined]
        except InputError:
            continue
        found.add(value)
    return found


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("nanotron", nanotron.OPTIMIZERS),
        ("maxtext", maxtext.OPTIMIZERS),
        ("megatron", training_flags.OPTIMIZERS),
        *((name, WRITTEN) for name in ("llama-factory", "axolotl", "transformers")),
    ],
)
def test_optimizers_are_those_that_files_name(name: str, written: Collection[str]) -> None:
    assert allowed(name, "optimizer", OPTIMIZERS) == set(written)


def test_lion_of_megatron_core_is_refused_for_its_adam() -> None:
    """findings/megatron-lion-trains-embeddings-with-adam.sh."""
    with pytest.raises(InputError, match="embeddings, the head, norms and biases to Adam"):
        registry().exporters()["megatron"].limits(structure(problem({"dp": 16}, optimizer="lion"), Problem))  # type: ignore[attr-defined]


def test_muon_is_megatron_lm_s_alone_without_a_sharded_state_and_in_no_fp16() -> None:
    assert "muon" not in {each for name in RELATIVES for each in allowed(name, "optimizer", OPTIMIZERS)}
    assert allowed("megatron", "precision", PRECISIONS, optimizer="muon") == {*PRECISIONS} - {"fp16"}
    assert allowed("megatron", "primary_weights", ("fp8", "bf16"), optimizer="muon", precision="fp8") == {"bf16"}
    limits = registry().exporters()["megatron"].limits(structure(problem({"dp": 16}, optimizer="muon"), Problem))  # type: ignore[attr-defined]
    assert "whole matrices of Muon" in limits.constraints["zero == 0"]


@pytest.mark.parametrize(
    ("name", "written"),
    [("nanotron", nanotron.FORMATS), ("accelerate", accelerate.PRECISIONS), ("lightning", lightning.FORMATS)],
)
def test_precisions_are_those_that_files_name(name: str, written: Collection[str]) -> None:
    wide = {"gradients": "fp32"} if name == "nanotron" else {}
    assert allowed(name, "precision", PRECISIONS, **wide) == set(written)


def test_schedules_are_those_that_nanotron_has_engines_for() -> None:
    limits = registry().exporters()["nanotron"].limits(structure(problem({"dp": 16}), Problem))  # type: ignore[attr-defined]
    assert limits.schedules == tuple(nanotron.ENGINES)


RELATIVES = {
    "megatron-bridge": bridge.DIALECT,
    "nemo": nemo.DIALECT,
    "verl": verl.DIALECT,
    "ms-swift": swift.DIALECT,
}
TRAININGS: tuple[dict[str, Any], ...] = (
    *({"precision": each} for each in PRECISIONS),
    *({"optimizer": each} for each in ("adamw", "adam-bf16", "adam-8bit", "sgd", "sgd-momentum")),
    {"offload": ["optimizer"]},
    *({"precision": each, "primary_weights": "bf16"} for each in ("fp8", "mxfp8")),
    *({"precision": each, "gradients": "fp32"} for each in ("fp16", "bf16")),
    *({"gradients": "bf16", "master_gradients": each} for each in (None, True, False)),
    *({"attention": each} for each in ("flash", "unfused")),
    *({"loss": each} for each in ("fused", "unfused")),
)


def refused(name: str, asked: Problem) -> bool:
    """Whether the framework's limits refuse a problem."""
    try:
        registry().exporters()[name].limits(asked)  # type: ignore[attr-defined]
    except InputError:
        return True
    return False


def unsaid(dialect: Dialect, asked: Problem, builds: bool) -> bool:
    """Whether the framework's table lacks what Megatron-LM is told by flags."""
    model, training = Asked.of(asked).transformer, asked.training
    flags = {**training_flags.precision_flags(training), **training_flags.optimizer_flags(training)}
    if builds:
        flags |= {**model_flags(model, training.sequence_length or 1), **detail_flags(asked.model, model)}
    try:
        dialect.check(flags, [*dialect.defaults, *flags])
    except InputError:
        return True
    return False


@pytest.mark.parametrize("name", RELATIVES)
def test_trainings_of_relatives_of_megatron_are_those_that_their_tables_say(name: str) -> None:
    for training in TRAININGS:
        asked = structure(
            problem({"dp": 16}, **{key: each for key, each in training.items() if each is not None}), Problem
        )
        if name == "megatron-bridge" and not unsaid(RELATIVES[name], asked, builds=False):
            continue  # Its named precisions, which are in no table, say less.
        assert refused(name, asked) == unsaid(RELATIVES[name], asked, builds=False), training


@pytest.mark.longer
def test_models_of_nemo_are_those_that_its_table_says() -> None:
    answers = set()
    models: dict[str, Any] = {name: model.config for name, model in library_models().items()}
    models["predicting"] = {"transformer": {**DENSE, "mtp_layers": 1}}
    models["grouped"] = {"transformer": {**SPARSE, "expert_groups": 4, "visited_groups": 2}}
    for name, model in models.items():
        asked = structure({**problem({"dp": 16}), "model": model}, Problem)
        try:
            registry().exporters()["megatron"].limits(asked)  # type: ignore[attr-defined]
        except InputError:
            continue
        assert refused("nemo", asked) == unsaid(nemo.DIALECT, asked, builds=True), name
        answers.add(refused("nemo", asked))
    assert answers == {True, False}


GAPS = {"pp": 3, "devices": 12}
"""Replicas of three of the four devices that each has of 16."""

EDGES: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
    ("pytorch", "as many micro-batches as stages", {"micro_batches": 4}, {"micro_batches": 3}),
    ("torchtitan", "as many micro-batches as stages", {"micro_batches": 4}, {"micro_batches": 3}),
    ("nanotron", "for every stage but one", {"micro_batches": 3}, {"micro_batches": 2}),
    ("deepspeed", "refuses ZeRO 2 and 3", {"zero": 1}, {"zero": 2}),
    ("lightning", "as ZeRO 2 or 3", {"pp": 1, "zero": 2}, {"pp": 1, "zero": 1}),
    ("megatron", "neither documents nor tests with pipelines", {"zero": 1}, {"zero": 2}),
    ("nemo", "leaves out none in between", {}, GAPS),
    ("nemo", "leaves out none in between", {**GAPS, "rank_order": "dp-inner"}, GAPS),
    ("nemo", "leaves out none in between", {**GAPS, "replicas": 1, "dp": 1, "devices": 3}, GAPS),
)
PLANNED = {"pp": 4, "dp": 4, "cp": 1, "tp": 1, "batch": 1, "micro_batches": 4, "schedule": "1f1b", "zero": 0}
PLANNED |= {"devices": 16, "width": 1, "replicas": 4, "rank_order": "pp-inner"}


@pytest.mark.parametrize(("name", "reason", "last", "first"), EDGES)
def test_what_is_just_within_a_limit_is_allowed_and_the_next_is_not(
    name: str, reason: str, last: dict[str, Any], first: dict[str, Any]
) -> None:
    gradients = {"gradients": "fp32"} if name == "nanotron" else {}
    limits = registry().exporters()[name].limits(structure(problem({"dp": 16}, **gradients), Problem))  # type: ignore[attr-defined]
    (rule,) = [rule for rule, why in limits.constraints.items() if reason in why]
    assert parse(rule).holds({**PLANNED, **last})
    assert not parse(rule).holds({**PLANNED, **first})


def limits_of(name: str, model: dict[str, Any], **training: Any) -> Limits:
    asked = {**problem({"dp": 16}, **training), "model": model}
    found: Limits = registry().exporters()[name].limits(structure(asked, Problem))  # type: ignore[attr-defined]
    return found


def test_a_ring_goes_where_no_layer_has_a_window() -> None:
    some = MODELS["qwen2"]
    for exchange, rules in (("ring", {"cp == 1"}), ("all_gather", set())):
        assert {"cp == 1"} & limits_of("megatron", some, context_exchange=exchange).constraints.keys() == rules
    assert "cp == 1" not in limits_of("megatron", {"transformer": dict(DENSE)}, context_exchange="ring").constraints


def test_layers_that_predict_further_tokens_are_recomputed_with_all_others_or_not_at_all() -> None:
    assert limits_of("megatron", {"transformer": {**SPARSE, "mtp_layers": 1}}).partial_recompute == ()
    assert limits_of("megatron", {"transformer": dict(SPARSE)}).partial_recompute == (("full", "none"),)


def test_nemo_has_even_stages_and_no_more_than_a_distributed_optimizer() -> None:
    found = limits_of("nemo", {"transformer": dict(DENSE)})
    assert (found.even_stages, found.zero, found.zero_degrees) == (True, (0, 1), False)


@pytest.mark.parametrize(
    ("precision", "gradients", "expected"),
    [("fp16", None, "fp16"), ("bf16", None, "fp32"), ("fp32", None, "fp32"), ("fp16", "fp32", "fp32")],
)
def test_gradients_left_out_are_in_the_format_that_is_priced(
    precision: str, gradients: str | None, expected: str
) -> None:
    assert gradient_format(Training(1, precision=precision, gradients=gradients)) == expected


def test_nanotron_fills_a_stage_with_its_share_of_the_products() -> None:
    """`get_block_compute_costs` of src/nanotron/models/llama.py: four squares, and three matrices of a network."""
    hidden, ffn, vocab, layers = 1024, 4096, 64_000, 24
    block, head = 4 * hidden**2 + 3 * hidden * ffn, hidden * vocab
    share = (layers * block + head) / 4
    found = split(4, layers, hidden, ffn, vocab)
    assert sum(found) == layers
    done = 0
    for stage, count in enumerate(found[:-1], 1):
        done += count * block
        assert done > stage * share >= done - block


def test_hybrids_are_refused_by_what_they_have_or_keep_their_states_whole() -> None:
    model = {**HYBRID, "model_type": "nemotron_h", "hybrid_override_pattern": "M-M*"}
    told = "nemotron_h has Mamba-2 layers and blocks without a feed-forward network"
    for name in ("megatron", "torchtitan", "maxtext", "galvatron"):
        with pytest.raises(InputError, match=told):
            limits_of(name, model)
    with pytest.raises(InputError, match="built like Llama"):
        limits_of("nanotron", model)
    for name in ("accelerate", "deepspeed", "transformers"):
        constraints = limits_of(name, model).constraints
        assert told in constraints["tp == 1"]
        assert told in constraints["cp == 1"]
    assert "tp == 1" not in limits_of("pytorch", model).constraints


HYBRID = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
