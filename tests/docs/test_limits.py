"""The limits the reference pages tell are those of the code."""

import re
from typing import Any

import pytest

from nest import units
from nest.formulate import cluster
from nest.io import formats, source
from nest.models.building import config
from nest.spec import constraints
from tests.docs.document import REPOSITORY

REFERENCE = REPOSITORY / "docs" / "reference"


@pytest.mark.parametrize(
    ("page", "pattern", "value"),
    [
        ("problem.md", r"(\d+) MiB, of which YAML", source.LARGEST_FILE / 2**20),
        ("problem.md", r"YAML (\d+) MiB", formats.LARGEST_YAML / 2**20),
        ("problem.md", r"([\d,]+) values", source.MOST_VALUES),
        ("problem.md", r"(\d+) levels of nesting", source.DEEPEST),
        ("problem.md", r"whole numbers up to 2\^(\d+)", units.LARGEST_WHOLE.bit_length() - 1),
        ("problem.md", r"0 or from (\S+) to", units.SMALLEST),
        ("problem.md", r"from 1e-30 to (\S+) in SI", units.LARGEST),
        ("problem.md", r"([\d,]+) devices \|", cluster.MOST_DEVICES),
        ("problem.md", r"([\d,]+) layers \|", config.MOST_LAYERS),
        ("constraints.md", r"([\d,]+) characters", constraints.LONGEST),
        ("constraints.md", r"(\d+) levels of nesting", constraints.DEEPEST),
    ],
)
def test_limits_are_those_of_the_code(page: str, pattern: str, value: Any) -> None:
    found = re.search(pattern, (REFERENCE / page).read_text())
    assert found is not None
    assert float(found[1].replace(",", "")) == value
