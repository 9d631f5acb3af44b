"""What a page is called."""

from typing import Any

import pytest

from nest.catalogue import library_models
from nest.formulate.cluster import build_cluster
from nest.formulate.model import load_model
from nest.hooks.registry import registry
from nest.io import structure
from nest.report.subject import model_name, title
from nest.spec import Problem
from nest_page.headline import cluster_size, in_words, model_size
from page_tests.plans import LEVELS, problem


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("llama-2-7b", "Llama 2 7B"),
        ("folder/llama.json", "llama"),
        ({"transformer": problem()["model"]["transformer"]}, "Transformer (8 layers)"),
        ({"model_type": "llama", "num_hidden_layers": 80}, "llama (80 layers)"),
        ({"_name_or_path": "meta-llama/Llama-2-7b", "num_hidden_layers": 32}, "meta-llama/Llama-2-7b"),
    ],
)
def test_a_page_is_called_after_model_and_cluster(model: Any, name: str) -> None:
    written = structure(problem(model=model), Problem).to_dict()
    assert title(written["model"], written["cluster"], [1024]) == f"{name} on 1,024 H100 SXM"


def test_the_size_of_the_model_is_that_of_its_graph() -> None:
    known = registry()
    read = structure(problem(), Problem)
    graph = known.run(lambda: load_model(read.model, read.training, known))
    assert known.run(lambda: model_size(read, known)) == f"8 layers, {in_words(graph.parameter_count)} parameters"


def test_what_says_no_size_has_none() -> None:
    known = registry()
    assert model_size(structure(problem(model={"strange": 1}), Problem), known) == ""


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (70.55e9, "70.5 billion"),
        (6.74e9, "6.74 billion"),
        (1.5e12, "1.5 trillion"),
        (125e6, "125 million"),
        (12e3, "12,000"),
    ],
)
def test_large_numbers_are_words(value: float, told: str) -> None:
    assert in_words(value) == told


def test_a_configuration_of_a_known_model_has_its_name() -> None:
    known = library_models().values()
    for model in known:
        # Llama 3.1 and 3.3 70B have one configuration, which then has the first one's name.
        first = next(each for each in known if each.config == model.config)
        assert model_name(model.config) == first.title
        assert model_name({**model.config, "vocab_size": 7}).startswith(f"{model.family} (")


def test_switches_that_a_configuration_leaves_out_are_those_of_the_known_model() -> None:
    config = {**library_models()["llama-3-70b"].config}
    assert model_name({key: value for key, value in config.items() if type(value) is not bool}) == "Llama 3 70B"


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ({"levels": LEVELS}, "2 nodes of 8 devices"),
        ({"levels": [*LEVELS, {"fanout": 3, "bandwidth": 1e9}]}, "3 racks of 2 nodes of 8 devices"),
        ({"levels": [{"fanout": 4, "bandwidth": 1e9}, {"fanout": 1, "bandwidth": 1e9}]}, "1 group of 4 devices"),
        ({"topology": {"torus": {"shape": [4, 4], "bandwidth": "45 GB/s", "latency": "1 us"}}}, ""),
    ],
)
def test_the_cluster_is_told_level_by_level(cluster: dict[str, Any], told: str) -> None:
    read = structure(problem(cluster={"device": "h100-sxm", **cluster}), Problem)
    assert cluster_size(read, build_cluster(read.cluster, registry())[0]) == told
