"""Tokens per sample: said by the problem or its graph, and of samples that have none, such as images."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.errors import InputError
from nest.formulate.model import default_sequence_length, describe, load_model, own_sequence_length
from nest.graph import Operator, OperatorGraph, Parameter, Tensor
from nest.hooks.registry import registry
from nest.io import structure, unstructure
from nest.spec import Problem, Training
from tests.test_api import SMALL

WIDTH, BLOCKS = 2048, 4


def images() -> OperatorGraph:
    """Products of a picture's channels with weights, one after the other."""
    pictures = [Tensor(f"picture{index}", (("batch", 1), ("hidden", WIDTH)), 2.0) for index in range(BLOCKS + 1)]
    operators = [
        Operator(
            f"layers.{index}/product",
            f"layers.{index}",
            "matmul",
            space=(("batch", 1), ("hidden", WIDTH), ("inner", WIDTH)),
            flops_per_point=2.0,
            inputs=(read,) if index else (Tensor("picture0", read.shape, 2.0, differentiable=False),),
            outputs=(made,),
            parameters=(Parameter(f"weight{index}", (("hidden", WIDTH), ("inner", WIDTH))),),
            contracted=("inner",),
            saves=(read.name,),
        )
        for index, (read, made) in enumerate(itertools.pairwise(pictures))
    ]
    names = tuple(f"layers.{index}" for index in range(BLOCKS))
    return OperatorGraph(tuple(operators), names, names, "pictures")


def problem(model: Any, **training: Any) -> dict[str, Any]:
    return {
        "nest": 1,
        "model": model,
        "training": {"global_batch": 64, **training},
        "cluster": {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 4, "link": "nvlink4"}], "price": 2.0},
    }


IMAGES = problem(unstructure(images()))


@pytest.fixture(scope="module")
def text_graph() -> dict[str, Any]:
    """A graph of samples of 1,024 tokens."""
    training = Training(global_batch=1, sequence_length=1024)
    written: dict[str, Any] = unstructure(load_model(structure(SMALL, Problem).model, training, registry()))
    return written


@pytest.mark.longer
def test_images_are_planned_without_tokens() -> None:
    plan = nest.solve(IMAGES)
    assert plan.status == "optimal"
    assert plan.batch_time is not None
    assert plan.problem["training"].get("sequence_length") is None
    assert not any("token" in key for key in plan.summary)
    assert not any("token" in key for key in plan.summary["cost"])
    used = plan.summary["devices_used"]
    assert plan.summary["samples_per_second_per_device"] == pytest.approx(64 / plan.batch_time / used)
    work = 3 * images().model_flops * 64 / plan.batch_time
    assert plan.summary["model_flops_utilisation"] == pytest.approx(work / (used * 989.4e12), rel=1e-3)
    assert nest.check(plan).ok
    assert nest.verify(plan).status == "proved"


def test_a_graph_says_how_long_its_samples_are(text_graph: dict[str, Any]) -> None:
    told = nest.solve(problem(text_graph, sequence_length=1024))
    left_out = nest.solve(problem(text_graph))
    assert left_out == told
    assert left_out.problem["training"]["sequence_length"] == 1024
    with pytest.raises(InputError, match=r"axis `sequence` is 1024 long.*training\.sequence_length, 2048"):
        nest.solve(problem(text_graph, sequence_length=2048))


def test_other_models_need_the_length(tmp_path: Path) -> None:
    for model in (SMALL["model"], "llama-3-8b", {"model_type": "llama"}):
        with pytest.raises(InputError, match=r"training\.sequence_length is missing; give the tokens per sample"):
            nest.evaluate(problem(model))
    path = tmp_path / "problem.yaml"
    path.write_text(json.dumps(problem("llama-3-8b"), indent=1))
    with pytest.raises(InputError, match=r"problem\.yaml:\d+: training\.sequence_length is missing"):
        nest.solve(path)


def test_tokens_of_the_training_are_none_of_images() -> None:
    with pytest.raises(InputError, match=r"training\.tokens: this model has no tokens"):
        nest.solve(problem(unstructure(images()), tokens="1T"))


def test_images_are_described_by_sample(text_graph: dict[str, Any]) -> None:
    written = unstructure(images())
    assert own_sequence_length(written, registry()) == 0
    assert default_sequence_length(written, registry()) is None
    assert own_sequence_length(text_graph, registry()) == 1024
    described = describe(images(), Training(global_batch=1))
    assert described["sequence_length"] is None
    assert described["flops_per_token"] is None
    assert described["flops_per_sample"] == images().model_flops == 2.0 * WIDTH**2 * BLOCKS
    assert described["layer_runs"][0]["flops_per_sample"] == 2.0 * WIDTH**2
