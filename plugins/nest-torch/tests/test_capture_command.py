"""`nest capture`: from a factory by name to a graph that nest plans."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from nest.errors import InputError
from nest.graph import OperatorGraph
from nest.io import structure

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")

from nest_torch.commands import register  # noqa: E402
from nest_torch.configurations import USUAL_LENGTH, load_configuration, usual_inputs  # noqa: E402

MODULES = str(Path(__file__).with_name("modules.py"))
TOKENS = "int64[batch,sequence=16]"


def called(*arguments: str) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    register(app)
    return CliRunner().invoke(app, ["capture", *arguments])


def written(output: Path, *arguments: str) -> OperatorGraph:
    result = called(*arguments, "--output", str(output))
    assert result.exit_code == 0, result.exception
    return structure(json.loads(output.read_text()), OperatorGraph)


def test_a_graph_is_written(tmp_path: Path) -> None:
    graph = written(tmp_path / "graph.json", f"{MODULES}:Gpt", "--input", TOKENS)
    assert graph.family == "Gpt"
    assert graph.blocks == ("blocks.0", "blocks.1", "blocks.2")
    assert {t.itemsize for o in graph.operators if o.kind == "matmul" for t in o.outputs} == {2.0}


def test_the_precision_is_that_of_weights_and_activations(tmp_path: Path) -> None:
    image = "float[batch,3,32,32]"
    wide = written(tmp_path / "wide.json", f"{MODULES}:Convolutional", "-i", image, "--precision", "fp32")
    narrow = written(tmp_path / "narrow.json", f"{MODULES}:Convolutional", "-i", image)
    products = [[o.bytes_read + o.bytes_written for o in g.operators if o.kind == "matmul"] for g in (wide, narrow)]
    assert products[0] == [2 * each for each in products[1]]


def test_inputs_by_keyword_are_those_in_order(tmp_path: Path) -> None:
    by_name = written(tmp_path / "name.json", f"{MODULES}:Llama", "-i", f"labels={TOKENS}", "-i", f"tokens={TOKENS}")
    in_order = written(tmp_path / "order.json", f"{MODULES}:Llama", "-i", TOKENS, "-i", TOKENS)
    assert by_name == in_order


def test_what_takes_no_part_is_said(tmp_path: Path) -> None:
    result = called(f"{MODULES}:Unused", "-i", "float[batch,8]", "--output", str(tmp_path / "graph.json"))
    assert "72 parameters take no part" in result.stderr


@pytest.mark.parametrize(
    ("place", "given", "told"),
    [
        ("models", TOKENS, "expected MODULE:FACTORY"),
        ("no_such_module:Gpt", TOKENS, "cannot be imported"),
        ("nowhere.py:Gpt", TOKENS, "there is no file nowhere.py"),
        (f"{MODULES}:Nothing", TOKENS, "there is no 'Nothing'"),
        (f"{MODULES}:broken", TOKENS, "making the module failed: no such thing"),
        (f"{MODULES}:__name__", TOKENS, "making the module failed"),
        (f"{MODULES}:Gpt", "int64[batch", "expected a type and axes"),
        (f"{MODULES}:Gpt", "int65[batch,sequence=16]", "the type must be one of"),
        (f"{MODULES}:Gpt", "int64[batch,sequence]", "needs a size"),
        (f"{MODULES}:Gpt", "int64[batch,=3]", "an axis is a size"),
        (f"{MODULES}:Gpt", f"words={TOKENS}", "cannot be traced"),
        (f"{MODULES}:Gpt", "int64[1,sequence=16]", "one axis must be called batch"),
        (f"{MODULES}:Gpt", "int64[batch,sequence=99999]", "cannot be traced"),
    ],
)
def test_mistakes_are_told_in_plain_words(tmp_path: Path, place: str, given: str, told: str) -> None:
    result = called(place, "--input", given, "--output", str(tmp_path / "graph.json"))
    assert isinstance(result.exception, InputError)
    assert told in str(result.exception)
    assert "\n" not in str(result.exception)
    assert list(tmp_path.iterdir()) == []


PICTURES = {"model_type": "vit", "image_size": 32, "patch_size": 8, "num_hidden_layers": 3, "hidden_size": 64}
PICTURES |= {"num_attention_heads": 4, "intermediate_size": 96}
WORDS = {"model_type": "t5", "vocab_size": 96, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4}
SOUND = {"model_type": "whisper", "vocab_size": 96, "d_model": 64, "num_mel_bins": 8, "max_source_positions": 16}
SOUND |= {f"{side}_{key}": size for side in ("encoder", "decoder") for key, size in (("layers", 2), ("ffn_dim", 96))}
SOUND |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "pad_token_id": 0, "decoder_start_token_id": 1}


@pytest.mark.parametrize(
    ("config", "head", "sequences"),
    [
        (PICTURES, "ViTForImageClassification", set()),
        ({**WORDS, "decoder_start_token_id": 0}, "T5ForConditionalGeneration", {24}),
        ({**SOUND, "architectures": ["WhisperForConditionalGeneration"]}, "WhisperForConditionalGeneration", {24}),
    ],
)
def test_a_configuration_of_transformers_is_captured_with_the_inputs_of_its_kind(
    tmp_path: Path, config: dict[str, Any], head: str, sequences: set[int]
) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    (tmp_path / "config.json").write_text(json.dumps(config))
    graph = written(tmp_path / "graph.json", str(tmp_path / "config.json"), "--sequence-length", "24")
    family = transformers.CONFIG_MAPPING[config["model_type"]]
    with torch.device("meta"):
        whole = getattr(transformers, head)(family(**{k: v for k, v in config.items() if k != "model_type"}))
    assert graph.family == head
    assert graph.parameter_count == sum(each.numel() for each in whole.parameters())
    assert {size for o in graph.operators for name, size in o.space if name == "sequence"} == sequences


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"model_type": "rwkv7"}, "has no family 'rwkv7'; name a function"),
        ({"hidden_size": 64}, "has no family None"),
        ({"model_type": "vit", "hidden_size": "wide"}, "making the module failed"),
        ({"model_type": "wav2vec2"}, "takes input_values; give its type and axes with --input"),
    ],
)
def test_configurations_without_a_module_are_told_in_plain_words(
    tmp_path: Path, config: dict[str, Any], told: str
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = called(str(tmp_path / "config.json"), "--output", str(tmp_path / "graph.json"))
    assert isinstance(result.exception, InputError)
    assert told in str(result.exception)
    assert "\n" not in str(result.exception)


SMALL = {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 96}
TOWERS = {"d_model": 64, **{key: size for key, size in SOUND.items() if "coder" in key}, "decoder_attention_heads": 4}
LONG = {"max_position_embeddings": 40}


@pytest.mark.parametrize(
    ("config", "head", "positions"),
    [
        ({"model_type": "bart", "vocab_size": 99, **TOWERS, **LONG}, "BartForConditionalGeneration", 40),
        ({"model_type": "bert", **SMALL, **LONG}, "BertForMaskedLM", 40),
        ({"model_type": "roberta", **SMALL, **LONG}, "RobertaForMaskedLM", 38),
        ({"model_type": "electra", **SMALL, **LONG}, "ElectraForMaskedLM", 40),
        ({"model_type": "opt", **SMALL, **LONG, "word_embed_proj_dim": 64}, "OPTForCausalLM", 40),
        ({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 40}, "GPT2LMHeadModel", 40),
        ({**SOUND, "max_target_positions": 40}, "WhisperForConditionalGeneration", 40),
        ({"model_type": "llama", **SMALL, **LONG, "intermediate_size": 96}, "LlamaForCausalLM", None),
        ({**WORDS, "decoder_start_token_id": 0, "n_positions": 40}, "T5ForConditionalGeneration", None),
    ],
)
def test_a_configuration_without_architectures_gets_its_familys_head_and_as_many_tokens_as_it_has_positions_for(
    tmp_path: Path, config: dict[str, Any], head: str, positions: int | None
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    (tmp_path / "config.json").write_text(json.dumps(config))
    module = load_configuration(tmp_path / "config.json", "fp32")
    assert type(module).__name__ == head
    longest = positions or USUAL_LENGTH
    assert f"sequence={longest}]" in "".join(usual_inputs(module, None))
    assert usual_inputs(module, longest) == usual_inputs(module, None)
    if positions is None:
        assert f"sequence={longest + 1}]" in "".join(usual_inputs(module, longest + 1))
        return
    with pytest.raises(InputError, match=f"has positions for {longest} tokens; give --sequence-length {longest} or"):
        usual_inputs(module, longest + 1)
    module = type(module)(module.config)
    ids = "input_ids" if module.main_input_name == "input_ids" else "decoder_input_ids"
    frames = {"input_features": torch.zeros(1, 8, 32)} if ids != "input_ids" else {}
    module(**{ids: torch.full((1, longest), 5)}, **frames)
    with pytest.raises((IndexError, RuntimeError)):
        module(**{ids: torch.full((1, longest + 1), 5)}, **frames)


def test_a_module_without_inputs_is_told() -> None:
    result = called(f"{MODULES}:Gpt", "--output", "graph.json")
    assert "--input is missing" in str(result.exception)
