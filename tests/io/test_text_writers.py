"""TOML and YAML that nest writes say the same to every reader."""

import re
import tomllib
from io import StringIO
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from nest.io import toml_text, yaml_text

words = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
scalars = words | numbers | st.booleans()
TRAPS = (
    "no", "on", "y", "1e6", "0o14", "014", "1:30", "null", "~", "", "a: b", "# c", "$(x)'\"", "2026-11-21", "\x7f\x85",
)  # fmt: skip


rows = st.lists(scalars, max_size=4) | st.lists(st.lists(words, max_size=2), max_size=2)


@given(st.dictionaries(words, st.dictionaries(words, scalars | rows, max_size=4), max_size=3))
@example({"a b": {word: [word, [word]] for word in TRAPS}})
def test_toml_is_read_back(tables: dict[str, dict[str, Any]]) -> None:
    assert tomllib.loads(toml_text(tables)) == tables


printable = st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF), max_size=8)
trees = st.recursive(
    printable | st.integers(-(2**53), 2**53) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(printable, inner, max_size=4),
    max_leaves=6,
)


@pytest.mark.longer
@pytest.mark.parametrize("version", [(1, 1), (1, 2)])
@given(st.dictionaries(printable, trees, max_size=4))
@example({word: [word] for word in TRAPS})
def test_yaml_is_read_back_by_readers_of_both_versions(version: tuple[int, int], mapping: dict[str, Any]) -> None:
    reader = YAML(typ="safe", pure=True)
    reader.version = version  # type: ignore[assignment]
    assert reader.load(StringIO(yaml_text(mapping))) == mapping


YAML_1_1_FLOAT = r"[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?"
"""A number with a point, in decimal (https://yaml.org/type/float.html, as PyYAML has it): 1e-08 is a word."""


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e-08)
@example(-1.5e22)
def test_yaml_has_numbers_that_readers_of_both_versions_take_for_numbers(number: float) -> None:
    written = yaml_text({"key": number}).removeprefix("key: ").rstrip()
    assert re.fullmatch(YAML_1_1_FLOAT, written)
    assert float(written) == number


def test_the_order_is_kept() -> None:
    mapping = {"b": 1, "a": {"d": 2, "c": 3}}
    assert yaml_text(mapping) == "b: 1\na:\n  d: 2\n  c: 3\n"
    assert list(tomllib.loads(toml_text({"b": {"z": 1, "a": 2}, "a": {}}))) == ["b", "a"]
