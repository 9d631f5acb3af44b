"""Hugging Face transformers builds a hundred published models without memory; nest counts as many parameters in each.

`configurations.txt` has a line each: name, `model_type`, `vocab_size`, `hidden_size`, `intermediate_size`,
`num_hidden_layers`, `num_attention_heads`, `num_key_value_heads`, further keys. Widths are those of the models'
`config.json` on huggingface.co.
"""

import json
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from nest.formulate.model import load_model
from nest.hooks.registry import registry
from nest.spec import Training
from tests.conformance.consumer import consume, needs

WIDTHS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
WIDTHS += ("num_attention_heads", "num_key_value_heads")
WORDS = {"m": "mamba", "a": "attention", "c": "conv", "f": "full_attention", "l": "linear_attention"}
STATES = {"mamba", "falcon_mamba", "mamba2"}  # Families without attention and feed-forward networks.
AT_ONCE = 20

BUILD = """
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
counts = []
for config in given:
    kind = config.pop("model_type")
    with torch.device("meta"):
        head = AutoModelForMaskedLM if "bert" in kind else AutoModelForCausalLM
        model = head.from_config(CONFIG_MAPPING[kind](**config))
    # Biases that correct routers are moved by hand, not learned.
    counts.append(sum(each.numel() for name, each in model.named_parameters() if "correction_bias" not in name))
answer(counts)
"""


def read_line(line: str) -> tuple[str, dict[str, Any]]:
    """The name and configuration of a line; `5m,a` stands for five layers of one word and one of another."""
    name, family, *values = line.split()
    config: dict[str, Any] = {"model_type": family, **dict(zip(WIDTHS, map(int, values), strict=False))}
    if family in STATES:
        config = {key: value for key, value in config.items() if key not in (WIDTHS[2], *WIDTHS[4:])}
    for key, _, value in (pair.partition("=") for pair in values[len(WIDTHS) :]):
        if key == "layer_types":
            runs = (repeat(WORDS[run[-1]], int(run[:-1] or 1)) for run in value.split(","))
            config[key] = list(chain.from_iterable(runs))
        else:
            config[key] = value if key == "hybrid_override_pattern" else json.loads(value)
    return name, config


CONFIGURATIONS = [read_line(line) for line in (Path(__file__).parent / "configurations.txt").read_text().splitlines()]


@pytest.mark.parametrize("first", range(0, len(CONFIGURATIONS), AT_ONCE))
def test_parameters_are_those_of_transformers(first):
    needs("torch", "transformers")
    some = CONFIGURATIONS[first : first + AT_ONCE]
    training = Training(global_batch=1, sequence_length=128)
    ours = {name: load_model(dict(config), training, registry()).parameter_count for name, config in some}
    theirs = consume(BUILD, [config for _, config in some])
    assert ours == dict(zip(ours, theirs, strict=True))
