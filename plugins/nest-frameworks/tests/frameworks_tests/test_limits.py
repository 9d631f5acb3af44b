"""Limits stand apart from what writes a framework's files; they allow what the tables there have, and no more."""

from collections.abc import Collection
from typing import Any

import pytest

from frameworks_tests.plans import DENSE, SPARSE, problem
from nest.catalogue import library_models
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import Problem
from nest_frameworks import accelerate, lightning, maxtext, nanotron
from nest_frameworks.limits import Asked
from nest_frameworks.megatron import bridge, training_flags
from nest_frameworks.megatron.model_flags import detail_flags, model_flags
from nest_frameworks.megatron.relatives import nemo, swift, verl
from nest_frameworks.megatron.relatives.dialect import Dialect
from nest_frameworks.trainers.names import WRITTEN

OPTIMIZERS = ("adam", "adamw", "adam-bf16", "adam-8bit", "sgd", "sgd-momentum", "lion", "adafactor")
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
