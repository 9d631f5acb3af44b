"""What is asked of the architectures of models."""

from typing import Any

from nest.hooks.architectures import architecture_of

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
}


def test_a_configuration_that_was_changed_since_is_read_anew() -> None:
    model = dict(LLAMA)
    before = architecture_of(model)
    model["num_hidden_layers"] = 3
    after = architecture_of(model)
    assert before is not None
    assert after is not None
    assert (len(before.blocks), len(after.blocks)) == (2, 3)
