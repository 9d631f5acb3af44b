"""Names, files and content in place all lead to the model they stand for."""

import json
from pathlib import Path

import pytest
from attrs import evolve

from nest.catalogue import library_models
from nest.errors import InputError
from nest.formulate.model import default_sequence_length, load_model, resolve_model
from nest.formulate.problem import complete_problem, decided_problem, self_contained
from nest.hooks.registry import registry
from nest.io import read, unstructure
from nest.spec import ClusterSpec, LevelSpec, Problem, Training, TransformerSpec
from tests.models.test_parameters import COUNTED

TRAINING = Training(global_batch=1, sequence_length=32)
SPEC = TransformerSpec(layers=3, hidden=24, ffn=40, heads=6, kv_heads=2, vocab=96)
WIDTHS = {"layers": 3, "hidden": 24, "ffn": 40, "heads": 6, "kv_heads": 2, "vocab": 96}
CONFIG = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}


def load(source, base=None):
    return load_model(source if base is None else resolve_model(source, base), TRAINING, registry())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "widths.yaml").write_text("transformer: " + json.dumps(WIDTHS))
    return tmp_path


@pytest.mark.parametrize("source", ["config.json", "widths.yaml", ".", CONFIG, {"transformer": WIDTHS}, SPEC])
def test_every_way_to_say_a_model_gives_its_operators(folder, source):
    assert load(source, folder).operators == load(CONFIG).operators


@pytest.mark.parametrize("source", ["config.json", "widths.yaml", "llama-3-70b", CONFIG, SPEC])
def test_what_is_resolved_needs_no_file(folder, source):
    model = resolve_model(source, folder)
    assert not isinstance(model, str)
    assert resolve_model(model, None) == model


@pytest.mark.parametrize("family", ["t5", "llama4", "afmoe"])
def test_unknown_families_are_refused_by_name_with_ways_on(family):
    with pytest.raises(InputError) as caught:
        load({**CONFIG, "model_type": family})
    for told in (repr(family), "`nest models` lists", "`nest capture config.json", "transformer:"):
        assert told in str(caught.value)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"model_type": "xlstm"}, "xLSTM of 'xlstm'"),
        ({"model_type": "olmo_hybrid"}, "delta nets between norms of 'olmo_hybrid'"),
        ({"model_type": "zamba2", "hybrid_override_pattern": "M-M*"}, "Mamba with shared attention of 'zamba2'"),
        ({"model_type": "rwkv7"}, "RWKV of 'rwkv7'"),
        ({"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}}, "updates of 'gemma3n_text'"),
        ({"model_type": "whisper", "is_encoder_decoder": True, "num_mel_bins": 80}, "cross-attention of 'whisper'"),
        ({"model_type": "vit", "image_size": 224, "patch_size": 16}, "image patches of 'vit'"),
    ],
)
def test_parts_that_nest_lacks_are_named_with_the_command_that_goes_on(config, told):
    with pytest.raises(InputError, match=f"cannot price the .*{told}") as caught:
        load({**CONFIG, **config})
    assert "`nest capture config.json --output graph.json`" in str(caught.value)


@pytest.mark.parametrize("pattern", [3, [], {"a": 1}, ["linear_attention", 4], "M" * 9])
def test_strange_lists_of_layers_are_told_like_any_unknown_family(pattern):
    for key in ("layer_types", "layers_block_type", "hybrid_override_pattern", "sparse_attention_config"):
        with pytest.raises(InputError, match=r"unknown family|cannot price"):
            load({**CONFIG, "model_type": "new", key: pattern, "full_attention_interval": pattern})


PICTURES = {"depth": 3, "hidden_size": 10, "intermediate_size": 20, "out_hidden_size": 24}


@pytest.mark.parametrize("part", ["text_config", "language_config", "llm_config"])
@pytest.mark.parametrize("inner", [None, ["LlamaForCausalLM"], ["LlamaModel"]])
def test_the_language_model_of_a_wrapper_is_planned_and_the_rest_named(part, inner):
    whole = {
        "model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"],
        part: {**CONFIG, "architectures": inner},
        "vision_config": PICTURES,
        "audio_config": {"model_type": "whisper"},
        "tie_word_embeddings": True,
    }
    graph = load(whole)
    assert graph.operators == load({**CONFIG, "tie_word_embeddings": True}).operators
    # 3 layers of 4 * 10 * 10 weights in attention and 2 * 10 * 20 in the network.
    assert graph.assumptions == (
        "The plan leaves out the vision tower (0 million parameters or more).",
        "The plan leaves out the audio tower.",
    )
    resolved = resolve_model(whole, None)
    assert resolve_model(resolved, None) == resolved


@pytest.mark.parametrize("outer", [True, False])
def test_a_wrapper_ties_its_embeddings_as_the_outer_key_says_at_any_depth(outer):
    inner = {"model_type": "thinker", "text_config": {**CONFIG, "tie_word_embeddings": not outer}}
    whole = {"model_type": "omni", "thinker_config": inner, "tie_word_embeddings": outer}
    assert load(whole).operators == load({**CONFIG, "tie_word_embeddings": outer}).operators


def test_numbered_labels_of_a_configuration_written_by_transformers_are_read():
    written = {**CONFIG, "id2label": {0: "LABEL_0", 1: "LABEL_1"}, "vision_config": {"id2label": {0: "LABEL_0"}}}
    problem = {
        "nest": 1,
        "model": written,
        "training": {"global_batch": 8, "sequence_length": 32},
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 2, "bandwidth": "450 GB/s"}]},
    }
    model = complete_problem(problem, registry()).model
    assert model["id2label"] == {"0": "LABEL_0", "1": "LABEL_1"}
    assert load(model).operators == load(CONFIG).operators
    with pytest.raises(InputError, match="model has the key 1 as a number and as text"):
        complete_problem({**problem, "model": {**CONFIG, "id2label": {1: "LABEL_1", "1": "one"}}}, registry())
    with pytest.raises(InputError, match=r"training has the key 1, which is not text"):
        complete_problem({**problem, "training": {**problem["training"], 1: 2}}, registry())


def test_a_wrapper_that_lists_its_widths_flat_is_read_like_the_family_it_wraps():
    flat = {
        **CONFIG,
        "model_type": "qwen2_5_vl",
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420},
    }
    graph = load(flat)
    assert graph.operators == load({**CONFIG, "model_type": "qwen2"}).operators
    assert graph.assumptions == ("The plan leaves out the vision tower (490 million parameters or more).",)


def test_a_wrapper_with_another_head_is_refused():
    whole = {"model_type": "llava", "architectures": ["LlavaForSequenceClassification"], "text_config": CONFIG}
    with pytest.raises(InputError, match="LlavaForSequenceClassification"):
        load(whole)


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "mtp_num_layers", "num_mtp_modules"])
def test_layers_for_multi_token_prediction_are_said_to_be_left_out(key):
    (told,) = load({**CONFIG, key: 2}).assumptions
    assert f"`{key}: 2`" in told
    assert "`training.mtp: true`" in told
    for none in (0, None):
        assert load({**CONFIG, key: none}).assumptions == ()


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN"])
def test_endless_numbers_matter_only_in_keys_that_are_read(tmp_path, number):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG)[:-1] + f', "time_step_limit": [0.0, {number}], "more": {{"a": {number}}}}}')
    model = resolve_model(str(path), None)
    assert load(model).operators == load(CONFIG).operators
    json.dumps(unstructure(model), allow_nan=False)
    path.write_text(json.dumps(CONFIG).replace('"vocab_size": 96', f'"vocab_size": {number}'))
    with pytest.raises(InputError, match="`vocab_size` must be a whole number"):
        load(str(path))


def test_endless_numbers_beside_a_configuration_in_place_are_still_refused(tmp_path):
    problem = {
        "nest": 1,
        "model": {**CONFIG, "time_step_limit": [0.0, float("inf")]},
        "training": {"global_batch": 8, "sequence_length": 32},
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 2, "bandwidth": "450 GB/s"}]},
    }
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(problem))
    assert read(path, Problem).model == resolve_model(problem["model"], None) | {"time_step_limit": [0.0, float("inf")]}
    path.write_text(json.dumps({**problem, "training": {"global_batch": float("inf"), "sequence_length": 32}}))
    with pytest.raises(InputError, match=r"training.global_batch must be a finite number"):
        read(path, Problem)


@pytest.mark.parametrize("source", ["lama-3-70b", "nowhere/config.json", "absent.json", ""])
def test_what_is_neither_name_nor_file_is_refused(folder, source):
    empty = folder / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match=r"^model: "):
        load(source, empty)


def test_mistakes_name_the_file_and_the_key(folder):
    (folder / "broken.json").write_text(json.dumps({**CONFIG, "hidden_size": 0, "vocab_size": None}))
    with pytest.raises(InputError, match=r"broken\.json.*`hidden_size`") as caught:
        load(str(folder / "broken.json"))
    assert "`vocab_size`" in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[1, 2]", "7", "", "\x00\x01"])
def test_files_that_are_no_mapping_are_refused(folder, text):
    (folder / "noise.json").write_text(text)
    with pytest.raises(InputError, match=r"noise\.json"):
        load(str(folder / "noise.json"))


def test_a_problem_is_made_complete(folder):
    cluster = ClusterSpec(levels=(LevelSpec(fanout=2),), device="h100-sxm")
    problem = Problem(nest=1, training=evolve(TRAINING, stack="none"), cluster=cluster, model="config.json")
    whole = self_contained(problem, folder)
    assert whole == evolve(problem, model=CONFIG)
    assert self_contained(whole, None) == whole


def test_default_sequences_are_the_context_within_reason():
    assert default_sequence_length(SPEC, registry()) == 4096
    assert default_sequence_length({"n_positions": 1024}, registry()) == 1024
    assert default_sequence_length({"max_position_embeddings": 131072}, registry()) == 4096
    assert default_sequence_length({"max_position_embeddings": "many"}, registry()) == 4096


def test_graphs_are_described_for_the_length_they_are_of(folder):
    graph = unstructure(load(CONFIG))
    assert default_sequence_length(graph, registry()) == TRAINING.sequence_length
    assert default_sequence_length({"graph": graph}, registry()) == TRAINING.sequence_length


def test_graphs_may_be_named_by_path(folder):
    written = unstructure(load(CONFIG))
    (folder / "graph.json").write_text(json.dumps(written))
    (folder / "model.yaml").write_text("graph: graph.json\nrepeat: 5\n")
    for source in ({"graph": "graph.json", "repeat": 5}, "model.yaml"):
        resolved = resolve_model(source, folder)
        assert resolved == {"graph": written, "repeat": 5}
        assert len(load_model(resolve_model(source, folder), TRAINING, registry()).blocks) == 5
    with pytest.raises(InputError, match="no file"):
        resolve_model({"graph": "elsewhere.json"}, folder)


@pytest.mark.parametrize("content", [[], [1], [{"name": "mm"}], {"operators": []}, {"graph": {"operators": []}}])
def test_graphs_that_are_none_are_told_what_one_has(folder, content):
    (folder / "graph.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"graph\.json.*not a graph.*`inputs`"):
        load(str(folder / "graph.json"))


def test_library_models_have_the_published_size():
    """Their names and papers say it: billions of parameters, rounded as published; others are counted elsewhere."""
    sizes = {
        "llama-2-7b": 6.738415616, "llama-2-13b": 13.015864320, "llama-2-70b": 68.976648192, "llama-3-8b": 8.030261248,
        "llama-3-70b": 70.553706496, "llama-3.1-8b": 8.030261248, "llama-3.1-70b": 70.553706496,
        "llama-3.1-405b": 405.853388800, "qwen3-0.6b": 0.596049920, "qwen3-1.7b": 1.720574976, "qwen3-4b": 4.022468096,
        "qwen3-8b": 8.190735360, "qwen3-14b": 14.768307200, "qwen3-32b": 32.762123264, "qwen3-235b-a22b": 235.093634560,
        "qwen2-0.5b": 0.494032768, "qwen2-1.5b": 1.543714304, "qwen2-7b": 7.615616512, "qwen2-72b": 72.706203648,
        "qwen2.5-0.5b": 0.494032768, "qwen2.5-1.5b": 1.543714304, "qwen2.5-3b": 3.085938688, "qwen2.5-7b": 7.615616512,
        "qwen2.5-14b": 14.770033664, "qwen2.5-32b": 32.763876352, "qwen2.5-72b": 72.706203648,
        "llama-3.2-1b": 1.235814400, "llama-3.2-3b": 3.212749824, "llama-3.3-70b": 70.553706496,
        "mixtral-8x22b": 140.620634112, "moonlight-16b-a3b": 15.96, "deepseek-v2-lite": 15.706484224,
        "glm-4.6": 352.797814784, "qwen3-30b-a3b": 30.532122624, "qwen1.5-moe-a2.7b": 14.315784192,
        "qwen2-57b-a14b": 57.408658944, "mistral-7b": 7.241732096, "mixtral-8x7b": 46.702792704,
        "deepseek-v3": 671.026404352, "kimi-k2": 1026.4, "gpt2": 0.124439808, "gpt2-xl": 1.557611200,
        "gpt3-175b": 174.615846912, "bert-large": 0.335174458, "codellama-7b": 6.738546688,
        "codellama-13b": 13.016028160, "codellama-34b": 33.743970304, "tinyllama-1.1b": 1.100048384,
        "open-llama-3b-v2": 3.426473600, "deepseek-llm-7b": 6.910365696,
        # Its name says 35: 34.66 of its text model, without vision tower and multi-token prediction.
        "qwen3.5-35b-a3b": 34.660610688,
    }  # fmt: skip
    assert set(sizes) | set(COUNTED) == set(library_models())
    assert all(source.strip() for model in library_models().values() for source in model.sources or ("",))
    for name, billions in sizes.items():
        digits = len(str(billions).partition(".")[2])
        assert round(load(name).parameter_count / 1e9, digits) == billions, name


def test_solve_and_evaluate_name_what_a_plan_leaves_out():
    problem = {
        "nest": 1,
        "model": {
            "model_type": "llava",
            "architectures": ["LlavaForConditionalGeneration"],
            "text_config": {**CONFIG, "num_nextn_predict_layers": 1},
            "vision_config": {},
        },
        "training": {"global_batch": 8, "sequence_length": 32},
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 2, "bandwidth": "450 GB/s"}]},
    }
    for asked in (complete_problem, lambda each, known, notify: decided_problem(each, {"dp": 2}, known, notify)):
        told = []
        asked(problem, registry(), told.append)
        left_out = [each for each in told if each.startswith("The plan leaves out")]
        assert [each.split(" (")[0] for each in left_out] == [
            "The plan leaves out the vision tower.",
            "The plan leaves out multi-token prediction",
        ]


def test_multi_token_prediction_is_trained_on_demand():
    model = {**CONFIG, "num_nextn_predict_layers": 1}
    problem = {
        "nest": 1,
        "model": model,
        "training": {"global_batch": 8, "sequence_length": 32, "mtp": True},
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 2, "bandwidth": "450 GB/s"}]},
    }
    told = []
    whole = complete_problem(problem, registry(), told.append)
    assert not [each for each in told if "multi-token" in each]
    assert len(load(whole.model).blocks) == CONFIG["num_hidden_layers"] + 1
    with pytest.raises(InputError, match=r"training\.mtp: the model has no layers"):
        complete_problem({**problem, "model": CONFIG}, registry())
