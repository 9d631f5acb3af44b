"""Parameter counts are exact."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.catalogue import library_models
from nest.formulate.model import describe, load_model, resolve_model
from nest.graph import OperatorGraph
from nest.hooks.registry import registry
from nest.models import nest_model_importers
from nest.spec import MlaSpec, Training, TransformerSpec


def block_counts(graph: OperatorGraph) -> list[int]:
    return [
        sum(operator.parameter_count for operator in graph.by_layer[graph.layer_index[name]]) for name in graph.blocks
    ]


def test_blocks_have_their_weights_biases_and_norms(small, load):
    graph = load(small.config)
    assert block_counts(graph) == [
        weights + others for weights, others in zip(small.weights, small.others, strict=True)
    ]


def test_a_tied_head_still_holds_its_weight(llama, load):
    tied = load({**llama, "tie_word_embeddings": True})
    untied = load({**llama, "tie_word_embeddings": False})
    head = [p for operator in tied.by_layer[-1] for p in operator.parameters if p.tied]
    assert [p.count for p in head] == [untied.parameter_count - tied.parameter_count]


def test_routed_experts_form_their_own_group(small, load):
    graph = load(small.config)
    routed = [p for o in graph.operators for p in o.parameters if p.group == "expert"]
    assert sum(p.count for p in routed) % 8 == 0
    assert all(p.shape[0] == ("experts", 8) for p in routed)
    assert bool(routed) == (small.weights != small.active)


def test_published_counts(shared, load):
    folder = shared / "hf_configs"
    counts = json.loads((folder / "parameter_counts.json").read_text())
    checked = []
    for name, expected in counts.items():
        if name == "_meta":
            continue
        config = json.loads((folder / f"{name}.json").read_text())
        if "text_config" in config:
            continue
        if not any(each.accepts(config) for each in nest_model_importers()):
            continue
        graph = load(config, sequence_length=128)
        checked.append(config["model_type"])
        assert graph.parameter_count == expected["total"], name
        (per_block,) = expected["per_block"].values()
        if isinstance(per_block, int):
            assert set(block_counts(graph)) == {per_block}, name
        else:
            found = block_counts(graph)
            assert {str(c): found.count(c) for c in found} == per_block["distinct"], name
        assert len(graph.blocks) == sum(expected["n_blocks"].values()), name
        routed = sum(p.count for o in graph.operators for p in o.parameters if p.group == "expert")
        assert routed == expected["routed_expert_params"], name
        words = graph.by_layer[0][0].parameters[0]
        assert words.count == expected["input_embedding"], name
        head = [p for o in graph.by_layer[-1] for p in o.parameters if p.name == "weight" and p.shape[0][0] == "vocab"]
        assert sum(p.count for p in head if not p.tied) == expected["lm_head"], name
        assert head[0].tied == expected["tied"], name
    families = "llama qwen3 gpt2 bert mixtral qwen2_moe qwen3_moe deepseek_v3 deepseek_v32 gpt_oss"
    assert {*families.split()} <= set(checked)


def test_a_model_of_pictures_and_text_is_read_as_its_language_model(shared, load):
    folder, name = shared / "hf_configs", "meta-llama--Llama-4-Scout-17B-16E-Instruct"
    expected = json.loads((folder / "parameter_counts.json").read_text())[name]
    content = json.loads((folder / f"{name}.json").read_text())
    graph = load(resolve_model(content, None), sequence_length=128)
    assert graph.assumptions == ("The plan leaves out all of Llama4ForConditionalGeneration but its language model.",)
    assert set(block_counts(graph)) == {expected["per_block"]["language_model.model.layers"]}
    words = graph.by_layer[0][0].parameters[0]
    assert (words.count, len(graph.blocks)) == (expected["input_embedding"], 48)
    routed = sum(p.count for o in graph.operators for p in o.parameters if p.group == "expert")
    assert routed == expected["routed_expert_params"]


@pytest.mark.longer
def test_counts_of_2026_are_exact(shared):
    folder = shared / "hf_configs_2026"
    if not folder.is_dir():
        pytest.skip("there is no hf_configs_2026")
    counts = json.loads((folder / "parameter_counts.json").read_text())
    training = Training(global_batch=1, sequence_length=128)
    for name in counts.keys() - {"_source"}:
        graph = load_model(str(folder / f"{name}.json"), training, registry())
        rest = counts[name]["total"] - counts[name]["language_model"]
        expected = counts[name]["language_model"]
        if name == "stepfun-ai--Step-3.7-Flash":
            # The count's class ignores widths outside `text_config` and has 128,815 words, not 128,896.
            expected += 2 * 4096 * (128_896 - 128_815)
        assert graph.parameter_count == expected, name
        told = [float(each.split("(")[1].split()[0]) * 1e6 for each in graph.assumptions if "tower" in each]
        assert not rest or all(0.7 * rest < least < rest for least in told), name


PUBLISHED = {
    "SmolLM3-3B": (3_075_098_624, "smollm3", (128256, 36, 16, 4, 2048, 11008), {}),
    "Seed-OSS-36B": (36_151_104_512, "seed_oss", (155136, 64, 80, 8, 5120, 27648), {}),
    "Ministral-3-8B": (8_489_553_920, "ministral3", (131072, 34, 32, 8, 4096, 14336), {}),
    "Apertus-8B": (8_053_338_176, "apertus", (131072, 32, 32, 8, 4096, 21504), {}),
    "Apertus-70B": (70_599_864_480, "apertus", (131072, 80, 64, 8, 8192, 43008), {}),
    "AFM-4.5B": (4_619_184_640, "arcee", (128004, 36, 20, 4, 2560, 18432), {}),
    "Granite-3.3-8B": (8_170_864_640, "granite", (49159, 40, 32, 8, 4096, 12800), {"tie_word_embeddings": True}),
    "Granite-3.1-3B-A800M": (3_298_793_472, "granitemoe", (49155, 32, 24, 8, 1536, 512),
        {"num_local_experts": 40, "num_experts_per_tok": 8, "tie_word_embeddings": True}),
    "EXAONE-4.0-32B": (32_003_216_384, "exaone4", (102400, 64, 40, 8, 5120, 27392), {}),
    "K-EXAONE-236B": (236_571_150_336, "exaone_moe", (153600, 48, 64, 8, 6144, 18432),
        {"head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 2048}),
    "Solar-Open-100B": (102_651_793_408, "solar_open", (196608, 48, 64, 8, 4096, 10240),
        {"n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1280}),
    "Gemma-7B": (8_537_680_896, "gemma", (256000, 28, 16, 16, 3072, 24576), {}),
    "GLM-4.7-Flash": (29_943_390_976, "glm4_moe_lite", (154880, 47, 20, 20, 2048, 10240),
        {"q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
            "n_routed_experts": 64, "num_experts_per_tok": 4, "moe_intermediate_size": 1536}),
    "Mistral4Config": (118_972_826_624, "mistral4", (131072, 36, 32, 32, 4096, 12288),
        {"q_lora_rank": 1024, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "n_routed_experts": 128, "num_experts_per_tok": 4, "moe_intermediate_size": 2048}),
    "Youtu-LLM-2B": (1_961_560_064, "youtu", (128256, 32, 16, 16, 2048, 6144),
        {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}),
}  # fmt: skip
"""What transformers 5.23.0 builds from configurations: parameters, family, `WIDTHS` and further keys."""

WIDTHS = ("vocab_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
WIDTHS += ("hidden_size", "intermediate_size")


@pytest.mark.parametrize("name", PUBLISHED)
def test_retyped_configurations_count_as_the_class_that_transformers_builds(name, load):
    parameters, family, widths, further = PUBLISHED[name]
    config = {"model_type": family, **dict(zip(WIDTHS, widths, strict=True)), **further}
    assert load(config, sequence_length=128).parameter_count == parameters


COUNTED = {
    "deepseek-v3.2": (671_877_929_216, 38_403_807_488),
    "phi-3-mini": (3_821_079_552, 3_821_079_552),
    "phi-4": (14_659_507_200, 14_659_507_200),
    "gemma-2-9b": (9_241_705_984, 9_241_705_984),
    "gemma-2-27b": (27_227_128_320, 27_227_128_320),
    "gemma-3-1b": (999_885_952, 999_885_952),
    "gemma-3-27b": (27_009_346_304, 27_009_346_304),
    "glm-4.5": (352_797_814_784, 33_632_251_904),
    "glm-4.5-air": (106_852_245_504, 13_424_123_904),
    "gpt-oss-20b": (20_914_757_184, 4_187_440_704),
    "gpt-oss-120b": (116_829_156_672, 5_711_982_912),
    "olmo-2-7b": (7_298_617_344, 7_298_617_344),
    "olmo-2-13b": (13_716_198_400, 13_716_198_400),
    "olmo-3-7b": (7_298_011_136, 7_298_011_136),
    "llama-4-scout": (107_769_861_120, 17_172_894_720),
    "llama-4-maverick": (400_711_848_960, 17_184_691_200),
    "gpt-neox-20b": (20_554_567_680, 20_554_567_680),
    "pythia-12b": (11_846_072_320, 11_846_072_320),
    "falcon-7b": (6_921_720_704, 6_921_720_704),
    "falcon-40b": (41_303_293_952, 41_303_293_952),
    "command-r": (34_980_831_232, 34_980_831_232),
    "command-r7b": (8_028_033_024, 8_028_033_024),
    "minimax-m2": (228_689_748_992, 11_030_537_216),
    "ernie-4.5-0.3b": (360_748_032, 360_748_032),
    "ernie-4.5-21b-a3b": (21_825_436_160, 3_352_148_480),
    "hunyuan-7b": (7_504_568_320, 7_504_568_320),
    "hunyuan-a13b": (80_393_183_232, 12_747_448_320),
}
"""Learned parameters, and those that a token meets, of models that transformers 5.23.0 built from these configurations
on the meta device of PyTorch 2.15.0: sums over `parameters()`, of modules named `experts` what a token visits."""


@pytest.mark.parametrize("name", COUNTED)
def test_counts_are_those_of_the_class_that_transformers_builds(name, load):
    training = Training(global_batch=1, sequence_length=128)
    described = describe(load(library_models()[name].config, sequence_length=128), training)
    assert (described["parameters"], described["active_parameters"]) == COUNTED[name]


widths = st.integers(1, 9)


@st.composite
def specifications(draw: st.DrawFn) -> TransformerSpec:
    kv_heads = draw(st.integers(1, 3))
    experts = draw(st.sampled_from([0, 1, 4]))
    layers = draw(st.integers(1, 4))
    mla = draw(st.none() | st.builds(MlaSpec, st.none() | widths, widths, widths, widths, widths))
    return TransformerSpec(
        layers=layers,
        hidden=draw(widths),
        ffn=draw(widths),
        heads=kv_heads * draw(st.integers(1, 3)),
        vocab=draw(widths),
        kv_heads=kv_heads,
        head_dim=draw(widths),
        gated_mlp=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        experts=experts,
        top_k=draw(st.integers(1, experts)) if experts else 1,
        moe_ffn=draw(st.none() | widths) if experts else None,
        shared_expert_ffn=draw(st.integers(0, 5)) if experts else 0,
        dense_layers=draw(st.integers(0, layers)),
        mla=mla,
        sliding_window=draw(st.none() | st.integers(1, 9)) if mla is None else None,
    )


@given(specifications())
def test_described_transformers_follow_the_closed_form(spec):
    (importer,) = [each for each in nest_model_importers() if each.accepts(spec)]
    graph = importer.load(spec, Training(global_batch=1, sequence_length=5))
    h, a = spec.hidden, spec.heads
    if spec.mla is None:
        attention = 2 * h * (a + spec.kv_heads) * spec.head_dim
    else:
        m = spec.mla
        channels = m.qk_nope_head_dim + m.qk_rope_head_dim
        query = h * a * channels
        if m.q_lora_rank is not None:
            query = m.q_lora_rank * (h + a * channels + 1)
        attention = query + h * (m.kv_lora_rank + m.qk_rope_head_dim) + m.kv_lora_rank
        attention += m.kv_lora_rank * a * (m.qk_nope_head_dim + m.v_head_dim) + a * m.v_head_dim * h
    matrices = 3 if spec.gated_mlp else 2
    dense = matrices * h * spec.ffn
    sparse = h * spec.experts + matrices * h * (spec.experts * (spec.moe_ffn or spec.ffn) + spec.shared_expert_ffn)
    dense_layers = spec.dense_layers if spec.experts else spec.layers
    expected = spec.layers * (attention + 2 * h) + dense_layers * dense
    expected += (spec.layers - dense_layers) * sparse
    expected += spec.vocab * h * (1 if spec.tied_embeddings else 2) + h
    assert graph.parameter_count == expected
