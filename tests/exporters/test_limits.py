"""Limits stand apart from what writes a framework's files; they allow what the tables there have, and no more."""

from collections.abc import Collection

import pytest

from nest.errors import InputError
from nest.exporters import accelerate, lightning, maxtext, nanotron
from nest.exporters.megatron import training_flags
from nest.exporters.trainers.names import WRITTEN
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import Problem
from tests.exporters.plans import problem

OPTIMIZERS = ("adam", "adamw", "adam-bf16", "adam-8bit", "sgd", "sgd-momentum", "lion", "adafactor")
PRECISIONS = ("fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")


def allowed(name: str, key: str, values: Collection[str]) -> set[str]:
    """Those of `values` of `training.key` that the framework's limits do not refuse."""
    exporter = registry().exporters()[name]
    found = set()
    for value in values:
        try:
            exporter.limits(structure(problem({"dp": 16}, **{key: value}), Problem))  # type: ignore[attr-defined]
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
    assert allowed(name, "precision", PRECISIONS) == set(written)


def test_schedules_are_those_that_nanotron_has_engines_for() -> None:
    limits = registry().exporters()["nanotron"].limits(structure(problem({"dp": 16}), Problem))  # type: ignore[attr-defined]
    assert limits.schedules == tuple(nanotron.ENGINES)


@pytest.mark.parametrize("precision", ["fp8", "mxfp8", "nvfp4"])
def test_of_several_flags_that_a_file_does_not_say_the_first_is_named(precision: str) -> None:
    """In the order in which Megatron-LM's are written: no set decides, whose order hangs on the hash seed."""
    asked = structure(problem({"dp": 16}, precision=precision, attention="unfused"), Problem)
    flags = training_flags.precision_flags(asked.training)
    with pytest.raises(InputError) as refused:
        registry().exporters()["nemo"].limits(asked)  # type: ignore[attr-defined]
    unsaid = str(refused.value).rpartition("with ")[2].split()[0]
    assert unsaid == next(flag for flag in flags if flag.startswith(("--fp8", "--fp4")))
