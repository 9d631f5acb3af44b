"""Random inputs of Piper's kind, small enough to price by hand."""

from typing import Any

from hypothesis import strategies as st

SIZES = st.floats(0.1, 10.0)


@st.composite
def chains(draw: st.DrawFn) -> dict[str, Any]:
    """A chain of nodes, for widths 1 and 2, whose ends state the same exchanges; choices of recomputation are equal."""
    count = draw(st.integers(2, 4))
    syncs = [draw(SIZES) * 2**30 for _ in range(count - 1)]
    return {
        "mbsInBatch": 4,
        "edges": [
            {"sourceId": 10 + index, "destId": 11 + index, "communicationCost": draw(SIZES) * 2**30}
            for index in range(count - 1)
        ],
        "nodes": [
            {"id": 10 + index, "TMPCs": {width: [_choice(draw, index, count, width, syncs)] for width in ("1", "2")}}
            for index in range(count)
        ],
    }


def _choice(draw: st.DrawFn, index: int, count: int, width: str, syncs: list[float]) -> dict[str, Any]:
    exchanged = [size if width == "2" else 0.0 for size in syncs]
    return {
        "timePerSample": draw(SIZES),
        "parameterSize": draw(SIZES) * 2**30,
        "memoryUsageA": draw(SIZES),
        "memoryUsageB": draw(SIZES),
        "syncTimeFw": {str(9 + index): exchanged[index - 1]} if index else {},
        "syncTimeBw": {str(11 + index): exchanged[index]} if index + 1 < count else {},
    }
