"""Formats known by how a text begins, YAML merge keys that must end, and fields that may be None but not missing."""

import pytest

from nest.errors import InputError
from nest.io import structure, unstructure
from nest.io.formats import MOST_MERGED
from nest.io.source import parse
from nest.spec import MlaSpec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1\n", "toml"),
        ("# a comment: with a colon\n\n[table]\na = 1\n", "toml"),
        ("[[tables]]\na = 1\n", "toml"),
        ("a: 1\n", "yaml"),
        ("a: b = 1\n", "yaml"),
        ('\n {"a": 1}', "json"),
    ],
)
def test_a_text_without_suffix_is_known_by_its_beginning(text: str, expected: str) -> None:
    assert parse(text, "problem").format == expected


def test_merge_keys_merge() -> None:
    text = "base: &base {x: 1, y: 2}\nmore:\n  <<: *base\n  y: 3\n"
    assert parse(text, "f.yaml").mapping["more"] == {"x": 1, "y": 3}


def merges(levels: int) -> str:
    """Each level merges the one before ten times: the keys copied are ten to the power of the levels."""
    first = "a0: &a0 {k: 1}\n"
    return first + "".join(
        f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}\n" for level in range(1, levels + 1)
    )


def test_merges_of_merges_end() -> None:
    assert parse(merges(3), "f.yaml").mapping["a3"] == {"k": 1}
    with pytest.raises(InputError, match=rf"f.yaml:\d+: .*repeat more than {MOST_MERGED} keys"):
        parse(merges(12), "f.yaml")


def test_a_field_that_is_none_but_not_by_default_is_written() -> None:
    attention = MlaSpec(None, 512, 128, 64, 128)
    assert unstructure(attention)["q_lora_rank"] is None
    assert structure(unstructure(attention), MlaSpec) == attention
