"""`training.trainable`: adapters, frozen layers, and what of memory, time and communication is left of them."""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nest
from nest.errors import InputError
from nest.formulate.instance import build_instance, model_blocks
from nest.formulate.model import load_model
from nest.formulate.trainable import backward_share, trained_count
from nest.graph import OperatorGraph
from nest.hooks.registry import registry
from nest.instance import Candidate
from nest.io import structure
from nest.spec import Lora, Problem, Trainable, Training, TransformerSpec
from tests.bare_devices import bare
from tests.formulate.conftest import DENSE, EXPERTS
from tests.strategies.families import FAMILIES, TOKENS

LAYERS = ("embedding", "layers.0", "layers.1", "layers.2", "layers.3", "head")

PREDICTING = TransformerSpec(layers=4, hidden=64, ffn=128, heads=8, vocab=500, mtp_layers=1)

LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}
LATENT_MODEL = {"layers": 2, "hidden": 64, "ffn": 128, "heads": 8, "vocab": 500, "mla": LATENT}


def llama(trainable: Any = None, length: int = 1024) -> OperatorGraph:
    training = Training(global_batch=1, sequence_length=length, trainable=trainable)
    return load_model("llama-2-7b", training, registry())


def lora(rank: int = 16, *targets: str) -> Trainable:
    return Trainable(lora=Lora(rank, targets) if targets else Lora(rank))


def candidates(problem: Problem) -> tuple[Candidate, ...]:
    return build_instance(problem, registry()).candidates


@pytest.mark.parametrize(
    ("trainable", "trained"),
    [
        # 32 blocks of width 4096: two matrices of 4096 * rank beside each of two projections.
        (lora(8), 32 * 2 * 8 * (4096 + 4096)),
        (lora(16), 8_388_608),
        # The six others too: three of 4096 by 11008.
        (lora(16, "all-linear"), 32 * 16 * (4 * (4096 + 4096) + 3 * (4096 + 11008))),
        # One adapter beside what is one product elsewhere.
        (lora(16, "qkv_proj", "o_proj"), 32 * 16 * (4096 + 3 * 4096 + 4096 + 4096)),
        (lora(16, "gate_up_proj"), 32 * 16 * (4096 + 2 * 11008)),
        (("head",), 4096 + 32000 * 4096),
        (Trainable(Lora(16), ("head",)), 8_388_608 + 4096 + 32000 * 4096),
        (("layers.31",), 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096),
        (("layers.*/attention_norm", "layers.*/mlp_norm"), 32 * 2 * 4096),
    ],
)
def test_parameters_that_are_trained(trainable: Any, trained: int) -> None:
    assert trained_count(llama(trainable)) == trained


def test_published_counts() -> None:
    """What `print_trainable_parameters` of peft shows for Llama-2-7B with r = 8 on q_proj and v_proj (its
    documentation and many model cards), and for Llama-3-8B with r = 16 on all seven projections (Unsloth's)."""
    graph = llama(lora(8))
    assert (trained_count(graph), graph.parameter_count) == (4_194_304, 6_742_609_920)
    training = Training(global_batch=1, sequence_length=128, trainable=lora(16, "all-linear"))
    assert trained_count(load_model("llama-3-8b", training, registry())) == 41_943_040


GPT3 = {"model": "gpt3-175b", "strategies": {"tp": (8,), "sp": (1,), "cp": (1,)}}


@pytest.mark.longer
def test_published_figures_of_gpt_3(problem: Callable[..., Problem]) -> None:
    """LoRA, arXiv 2106.09685, table 4 and section 4.2: parameters of ranks 1 and 8 on queries and values; 350 GB in
    place of 1.2 TB; 43.1 tokens per second and V100 in place of 32.5, with as many shards of the weights."""

    def counted(rank: int) -> int:
        training = Training(global_batch=1, sequence_length=128, trainable=lora(rank))
        return trained_count(load_model("gpt3-175b", training, registry()))

    assert (round(counted(1) / 1e6, 1), round(counted(8) / 1e6, 1)) == (4.7, 37.7)
    training = {"micro_batch": (1,), "stack": "none", "precision": "fp16", "sequence_length": 1024}
    machines = {"device": bare("v100-sxm-32g")}
    whole, adapted = (
        candidates(problem(training={**training, "trainable": each}, cluster=machines, **GPT3))[0]
        for each in (None, lora(8))
    )
    held = sum(8 * getattr(adapted.state[0], part).sum() for part in ("weights", "gradients", "optimizer"))
    assert 0.95 < held / 350e9 < 1.05
    faster = (whole.forward + whole.backward).sum() / (adapted.forward + adapted.backward).sum()
    assert 0.95 < faster / (43.1 / 32.5) < 1.1


QWEN = {
    "7B": {"layers": 32, "hidden": 4096, "ffn": 11008, "heads": 32, "vocab": 151936},
    "14B": {"layers": 40, "hidden": 5120, "ffn": 13696, "heads": 40, "vocab": 152064},
}


@pytest.mark.longer
@pytest.mark.parametrize(
    ("size", "length", "gigabytes", "seconds"),
    [
        ("7B", 2048, 23.8, 5.2),
        ("7B", 4096, 29.7, 10.1),
        ("7B", 8192, 36.6, 21.3),
        ("14B", 2048, 37.4, 8.4),
        ("14B", 4096, 42.5, 17.0),
        ("14B", 8192, 55.2, 36.0),
    ],
)
def test_published_runs_of_qwen(size: str, length: int, gigabytes: float, seconds: float) -> None:
    """README of QwenLM/Qwen (03cd81f5), "Profiling of Memory and Speed": LoRA of rank 64 on every linear layer with
    Flash Attention 2 and gradient checkpointing, batches of 1 accumulated 8 times, on one A100-SXM4-80G."""
    training = {"global_batch": 8, "sequence_length": length, "stack": "none"}
    found = nest.evaluate(
        {
            "nest": 1,
            "model": {"transformer": QWEN[size]},
            "training": {**training, "trainable": {"lora": {"rank": 64, "targets": "all-linear"}}},
            "cluster": {"device": "a100-sxm-80g", "levels": [{"name": "node", "fanout": 1, "bandwidth": "300 GB/s"}]},
            "fixed": {"recompute": "full", "micro_batch": 1},
        }
    )
    assert found.batch_time is not None
    assert 0.9 < found.batch_time / seconds < 1.1
    assert 0.8 < found.stages[0].memory / (gigabytes * 1e9) < 1.05


def stored(format_name: str | None) -> Candidate:
    problem: dict[str, Any] = {
        "nest": 1,
        "model": "llama-2-7b",
        "training": {"global_batch": 1, "sequence_length": 1304, "micro_batch": [1], "stack": "none"},
        "cluster": {"device": "a100-sxm-40g", "levels": [{"name": "node", "fanout": 1, "bandwidth": "300 GB/s"}]},
    }
    training = {**problem["training"], "trainable": {"lora": {"rank": 8}, "stored": format_name}}
    return candidates(structure({**problem, "training": training}, Problem))[0]


def test_frozen_weights_in_few_bits() -> None:
    """Bytes: QLoRA, section 3. Seconds: Lightning-AI/litgpt, tutorials/resource-tables.md, commit 4839345a: 2.36
    minutes for a thousand micro-batches of Llama 2 7B, 3.68 in nf4."""
    wide, narrow, double = stored(None), stored("nf4"), stored("nf4-double")
    linear = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    saved = [(wide.state[0].weights - each.state[0].weights).sum() for each in (narrow, double)]
    assert saved == [pytest.approx(linear * (2 - (4 + bits) / 8)) for bits in (32 / 64, 8 / 64 + 32 / (64 * 256))]
    slower = (narrow.forward + narrow.backward - wide.forward - wide.backward).sum()
    assert 0.9 < 1000 * slower / 60 / (3.68 - 2.36) < 1.15
    first, last = wide.recompute[0], narrow.recompute[0]
    # Embedding and head are as they were; a block has a 16-bit copy of one weight at a time.
    assert narrow.state[0].weights[[0, -1]] == pytest.approx(wide.state[0].weights[[0, -1]])
    assert 0 < (last.peak - first.peak)[1] <= 2 * 2 * 4096 * 11008
    assert (narrow.state[0].gradients == wide.state[0].gradients).all()


def test_products_in_8_bits_have_no_narrow_weights() -> None:
    with pytest.raises(InputError, match=r"trainable\.stored goes with products in 16 or 32 bits, not in fp8"):
        nest.evaluate(
            {
                "nest": 1,
                "model": "llama-2-7b",
                "training": {
                    "global_batch": 1,
                    "sequence_length": 128,
                    "precision": "fp8",
                    "trainable": {"lora": {"rank": 8}, "stored": "nf4"},
                },
                "cluster": {"device": "h100-sxm", "levels": [{"fanout": 1, "bandwidth": "300 GB/s"}]},
            }
        )


def test_narrow_values_have_adapters_of_their_own() -> None:
    for target, channels in (("k_proj", 6), ("v_proj", 4)):
        training = Training(1, TOKENS, trainable=lora(3, target))
        graph = load_model(FAMILIES["mimo_v2_flash"], training, registry())
        # Layers of 2 and of 4 key-value heads, 48 wide.
        assert trained_count(graph) == 3 * sum(48 + heads * channels for heads in (2, 4))


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"deepseek_v32", "glm_moe_dsa"}))
def test_every_family_has_adapters_beside_its_linear_layers(family: str) -> None:
    def loaded(trainable: Trainable | None) -> OperatorGraph:
        return load_model(FAMILIES[family], Training(1, TOKENS, trainable=trainable), registry())

    wanted = 0
    for operator in loaded(None).operators:
        if operator.kind == "matmul" and operator.parameters and operator.name != "head/logits":
            weight = max(operator.parameters, key=lambda each: each.count)
            branches, experts = (dict(weight.shape).get(axis, 1) for axis in ("branch", "experts"))
            if not operator.name.endswith(("/key_value", "_up")):
                branches = 1  # One module makes all, such as `in_proj` of Mamba.
            inner = prod(size for axis, size in weight.shape if axis in operator.contracted)
            wanted += 3 * experts * (branches * inner + weight.count // (experts * inner))
    assert trained_count(loaded(lora(3, "all-linear"))) == wanted


def test_adapters_add_the_products_of_the_paper() -> None:
    tokens, rank = 1024, 16
    wanted = sum(2 * tokens * rank * (inner + outer) * 32 for inner, outer in ((4096, 4096), (4096, 4096)))
    assert llama(lora(rank)).flops - llama().flops == wanted
    wanted = 2 * tokens * rank * 32 * (4 * (4096 + 4096) + 3 * (4096 + 11008))
    assert llama(lora(rank, "all-linear")).flops - llama().flops == wanted


def test_backward_work_follows_what_is_trained() -> None:
    graph, tokens = llama(lora()), 1024
    assert backward_share(llama()) == 2.0
    by_name = {operator.name: operator for operator in graph.operators}
    # Nothing trained lies in front of the first adapters.
    assert all(operator.backward_flops == 0 and not operator.saves for operator in graph.by_layer[0])
    first, second = by_name["layers.0/query"], by_name["layers.1/query"]
    assert (first.backward_flops, first.saves) == (0.0, ())
    assert (second.backward_flops, second.saves) == (2 * tokens * 4096 * 4096, ())
    assert by_name["layers.1/mlp_up"].backward_flops == by_name["layers.1/mlp_up"].flops
    down = by_name["layers.1/query.q_proj.lora_a"]
    assert down.backward_flops == 2 * down.flops
    assert by_name["layers.0/query.q_proj.lora_a"].backward_flops == down.flops
    # An adapter keeps what it reads; norms and activations keep what the gradient of their input needs.
    assert down.saves == ("layers.1/attention_norm",)
    assert by_name["layers.1/mlp_activated"].saves == ("layers.1/mlp_up",)
    assert by_name["head/logits"].saves == ()


def test_layers_in_front_of_all_that_is_trained_have_no_backward_pass(problem: Callable[..., Problem]) -> None:
    asked = problem(training={"trainable": ("layers.3", "head")}, strategies={"tp": (1, 4), "cp": (1, 2)})
    for each in candidates(asked):
        for index, layer in enumerate(LAYERS):
            learns = layer in ("layers.3", "head")
            sizes = [group.gradients[index] + group.optimizer[index] + group.update[index] for group in each.state]
            kept = [mode.first[index] + mode.extra[index] for mode in each.recompute if mode.name in ("none", "full")]
            assert (each.backward[index] > 0) == learns
            assert any(sizes) == any(kept) == learns
            assert all(group.weights[index] > 0 for group in each.state)


@pytest.mark.longer
def test_memory_is_that_of_the_formulas(problem: Callable[..., Problem]) -> None:
    asked = problem(model="llama-2-7b", training={"trainable": lora(), "sequence_length": 512, "stack": "none"})
    one = next(each for each in candidates(asked) if each.name == "mb1")
    (dense,) = one.state
    # bf16: 2 bytes of every weight; 4 of gradient and 12 of copy and moments (Megatron-LM, dist_optimizer.md) of what
    # is trained alone.
    assert dense.weights.sum() == 2 * (6_738_415_616 + 8_388_608)
    assert dense.gradients.sum() == 4 * 8_388_608
    assert dense.optimizer.sum() == 12 * 8_388_608


@pytest.mark.parametrize(("trainable", "gradients"), [(("head/logits",), 2), (("layers.0",), 1)])
def test_further_predictions_share_what_is_trained(trainable: tuple[str, ...], gradients: int) -> None:
    training = Training(global_batch=1, sequence_length=128, trainable=trainable)
    by_name = {each.name: each for each in load_model(PREDICTING, training, registry()).operators}
    for name in ("head/logits", "head/logits_1"):
        # With the weight alone, or with what is in front of it.
        assert by_name[name].backward_flops == by_name[name].flops
        assert bool(by_name[name].saves) == (gradients == 2)


MODELS = {"dense": DENSE, "experts": EXPERTS}


@pytest.mark.longer
@settings(max_examples=5, deadline=None)
@given(st.sampled_from(sorted(MODELS)), st.sets(st.integers(0, 5), min_size=1), st.sets(st.integers(0, 5)))
def test_freezing_more_is_never_slower_nor_larger(
    problem_of: Callable[..., Problem], name: str, few: set[int], others: set[int]
) -> None:
    def priced(chosen: set[int]) -> Iterator[Candidate]:
        asked = problem_of(
            model=MODELS[name],
            training={"trainable": tuple(LAYERS[index] for index in sorted(chosen)), "micro_batch": (1,)},
            strategies={"tp": (1, 2), "cp": (1, 2), "ep": (1, 2)},
        )
        return iter(candidates(asked))

    for less, more in zip(priced(few), priced(few | others), strict=True):
        assert less.name == more.name
        for (place, mine), (_, its) in zip(less.arrays(), more.arrays(), strict=True):
            # What the product behind an attention that is recomputed does not keep is there while it is at work.
            assert place.endswith(".peak") or (mine <= its * (1 + 1e-12)).all(), (less.name, place)
        for mode, other in zip(less.recompute, more.recompute, strict=True):
            assert (mode.first + mode.peak <= (other.first + other.peak) * (1 + 1e-12)).all(), (less.name, mode.name)
        assert less.gathered <= more.gathered
        assert less.busy is not None
        assert more.busy is not None
        assert (less.busy <= more.busy * (1 + 1e-12)).all()


@pytest.fixture(scope="module")
def problem_of() -> Callable[..., Problem]:
    from tests.formulate.conftest import problem as build

    made: Callable[..., Problem] = build.__wrapped__()  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (DENSE, ("all-linear",)),
        (DENSE, ("lm_head", "v_proj")),
        (DENSE, ("qkv_proj", "gate_up_proj")),
        (EXPERTS, ("gate_proj", "down_proj")),
        ({"transformer": LATENT_MODEL}, ("q_b_proj", "kv_b_proj", "o_proj")),
    ],
)
def test_every_sharding_holds_the_shares_of_adapters(
    problem: Callable[..., Problem], model: Any, targets: tuple[str, ...]
) -> None:
    """Whatever divides a projection divides one of its adapter's products; no collective carries a gradient that is
    not needed."""
    asked = problem(model=model, training={"trainable": lora(4, *targets), "micro_batch": (1,)})
    for block in model_blocks(asked, registry()):
        by_name = {operator.name: operator for operator in block.graph.operators}
        made = {tensor.name: tensor for operator in block.graph.operators for tensor in operator.outputs}
        for operator in block.graph.operators:
            assert all(made.get(each.name, each).shape == each.shape for each in operator.inputs), operator.name
            if operator.collective is not None and not any(
                tensor.differentiable for tensor in (*operator.inputs, *operator.outputs)
            ):
                assert len(operator.collective.backward) <= operator.collective.weight_gradients
            if operator.parameters and operator.name.endswith(("lora_a", "lora_b")):
                whole = dict(by_name[operator.name.rsplit(".", 2)[0]].parameters[0].shape) | {"rank": 4}
                assert all(whole[axis] == size for axis, size in operator.parameters[0].shape)


@pytest.mark.longer
def test_adapters_alone_make_zero_1_and_2_what_zero_0_is(problem: Callable[..., Problem]) -> None:
    asked = problem(training={"trainable": lora(4)})
    space = build_instance(asked, registry()).space
    assert [space.effective_zero(zero) for zero in range(4)] == [0, 0, 0, 3]
    further = problem(training={"trainable": Trainable(Lora(4), ("head",))})
    space = build_instance(further, registry()).space
    assert [space.effective_zero(zero) for zero in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("model", "trainable", "said"),
    [
        (DENSE, lora(4, "w_pack"), "no linear layer 'w_pack'; it has down_proj"),
        (DENSE, ("haed",), "no layer 'haed'; layers are embedding, layers.0, ..., layers.3, head"),
        (DENSE, ("layers.0/attention",), "names no layer with parameters"),
        ({"transformer": LATENT_MODEL}, lora(4, "qkv_proj"), "no linear layer 'qkv_proj'"),
        (FAMILIES["deepseek_v32"], lora(4, "all-linear"), "no adapter of kv_b_proj in sparse attention"),
        (PREDICTING, lora(4, "lm_head"), "no adapter on lm_head with mtp_layers"),
        (DENSE, Trainable(), "names no layer with parameters"),
        ("gpt2", ("head",), "'head' shares its weight with 'embedding'; name both or neither"),
    ],
)
def test_mistakes_are_told(problem: Callable[..., Problem], model: Any, trainable: Any, said: str) -> None:
    with pytest.raises(InputError, match=r"training\.trainable") as caught:
        build_instance(problem(model=model, training={"trainable": trainable}), registry())
    assert said in str(caught.value)
