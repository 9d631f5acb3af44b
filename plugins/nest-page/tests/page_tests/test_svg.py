"""Text in drawings: how much of it fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest_page.svg import fits, shortened


@pytest.mark.longer
@given(st.text(st.characters(categories=["L", "N"]), max_size=80), st.floats(10, 500), st.floats(8, 20))
def test_shortened_text_fits_and_is_a_beginning(content: str, width: float, size: float) -> None:
    told = shortened(content, width, size)
    if fits(content, width, size):
        assert told == content
        return
    assert told.endswith("…")
    assert content.startswith(told[:-1])
    assert fits(told, width, size) or told == "…"
    assert not fits(told + content[len(told) - 1 : len(told) + 1], width, size)
