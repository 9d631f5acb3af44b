"""What a page is called."""

from typing import Any

import pytest

from nest.files import structure
from nest.reporting.naming import title
from nest.spec import Problem
from tests.reporting.plans import problem


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("llama-2-7b", "llama-2-7b"),
        ("folder/llama.json", "llama"),
        ({"transformer": problem()["model"]["transformer"]}, "Transformer of 8 layers"),
        ({"model_type": "llama", "num_hidden_layers": 80}, "llama of 80 layers"),
        ({"_name_or_path": "meta-llama/Llama-2-7b", "num_hidden_layers": 32}, "meta-llama/Llama-2-7b of 32 layers"),
    ],
)
def test_a_page_is_called_after_model_and_cluster(model: Any, name: str) -> None:
    assert title(structure(problem(model=model), Problem), 1024) == f"{name} on 1,024 h100-sxm"
