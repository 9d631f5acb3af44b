"""What others call nest's keys and words: each row of the table leads to something nest takes."""

import re
from typing import Any

import attrs
import pytest

from nest import spec
from nest.catalogue import links, optimizers, stacks
from nest.formulate.space import FIXED_ONLY
from nest.hooks.registry import registry
from nest.io import structure
from nest.io.names import KEYS, WORDS, hint, meant, near, plain
from nest.io.source import read_value
from nest.spec.constraints import PLAN_NAMES, STAGE_NAMES
from nest.spec.problem import RECOMPUTE_MODES
from nest.spec.training import PRECISIONS

RECORDS: dict[str, Any] = {
    "training": spec.Training,
    "training.overlap": spec.Overlap,
    "search": spec.Search,
    "cluster": spec.ClusterSpec,
    "cluster.levels": spec.LevelSpec,
    "model.transformer": spec.TransformerSpec,
}
NEEDED: dict[str, dict[str, Any]] = {
    "training": {"global_batch": 8},
    "cluster.levels": {"fanout": 8},
    "model.transformer": {"layers": 1, "hidden": 8, "ffn": 8, "heads": 1, "vocab": 8},
}


def decisions() -> set[str]:
    return {*PLAN_NAMES, *STAGE_NAMES, *FIXED_ONLY, *registry().strategies(), "stages"}


@pytest.mark.parametrize(("name", "section", "written", "others"), KEYS, ids=[f"{row[0]}-{row[3][:9]}" for row in KEYS])
def test_keys_are_nests_and_are_written_as_told(name: str, section: str, written: str, others: str) -> None:
    given = read_value("{" + re.sub("[<>]", "", written) + "}")
    assert list(given) == [name]
    if section == "fixed":
        assert name in decisions()
        assert structure(given, spec.Fixed).values == given
    else:
        found = structure({**NEEDED.get(section, {}), **given}, RECORDS[section])
        assert getattr(found, name) is not None
    for other in others.split():
        told = hint(other, [])
        assert re.match(r"write `\w+: .*` under `[\w.]+`$", told), told


def test_words_are_nests() -> None:
    known = {*registry().schedules(), *registry().exporters(), *PRECISIONS, *optimizers(), *links(), *stacks()}
    assert {name for name, _, _ in WORDS} <= {*known, *RECOMPUTE_MODES}


def test_no_schedule_that_nest_has_is_said_to_be_another() -> None:
    own = {plain(name): name for name in registry().schedules()}
    told = [(other, name) for name, _, others in WORDS for other in others.split()]
    assert [(other, name) for other, name in told if own.get(plain(other), name) != name] == []
    assert hint("zb_vhalf", registry().schedules()).endswith("the nearest is zb-v")


def test_nothing_nest_knows_in_a_section_is_told_to_be_something_else() -> None:
    for section, record in RECORDS.items():
        for key in attrs.fields_dict(record):
            found = meant(key.upper(), attrs.fields_dict(record))
            assert found is None or found.name == key, section
    for key in decisions():
        found = meant(key.upper(), decisions())
        assert found is None or found.name == key


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("TP", ["tp", "pp"], ("tp",)),
        ("meta-llama/Meta-Llama-3-70B", ["llama-3-70b", "llama-3.1-70b"], ("llama-3-70b",)),
        ("meta-llama/Llama-3.1-70B-Instruct", ["llama-3-70b", "llama-3.1-70b"], ("llama-3.1-70b",)),
        ("H100", ["a100-sxm-80g", "h100-sxm"], ("h100-sxm",)),
        ("A100", ["a100-sxm-40g", "a100-sxm-80g"], ("a100-sxm-40g", "a100-sxm-80g")),
        ("A100-80GB", ["a100-sxm-40g", "a100-sxm-80g"], ("a100-sxm-80g",)),
        ("vpp", ["pp"], ("pp",)),
        ("zebra", ["tp", "pp"], ()),
        ("", ["tp"], ()),
    ],
)
def test_case_separators_and_organisations_make_no_difference(
    name: str, known: list[str], found: tuple[str, ...]
) -> None:
    assert near(name, known) == found


def test_values_are_said_in_nests_words() -> None:
    assert hint("dtype", ["precision"], "float16") == "write `precision: fp16`"
    assert hint("tensor-parallel", ["tp"], 4) == "write `tp: 4`"
    assert hint("TensorParallelSize", ["tp"], True) == "write `tp: true`"
    assert hint("fsdp", ["zero"], True) == "write `zero: 3`"
    assert hint("tp_size", ["tp"], [1, 2]) == "write `tp: 8`"
    assert plain("Megatron_LM") == "megatronlm"
