"""Tables and layer lists."""

from nest.report.decisions import LONGEST_LIST, chunk_ranges, ranges
from nest.report.text.layout import table


def test_columns_align() -> None:
    lines = table(["name", "size"], [["a", "10"], ["long", "7"]], right=(1,)).splitlines()
    assert lines == ["name  size", "----  ----", "a       10", "long     7"]


def test_runs_of_numbered_names_are_joined() -> None:
    assert ranges(["embedding", "layers.0", "layers.1", "layers.2"]) == "embedding, layers.0-2"
    assert ranges(["layers.78", "layers.79", "head"]) == "layers.78-79, head"
    assert ranges(["node1", "node2", "node4"]) == "node1-2, node4"
    assert ranges(["a", "b"]) == "a, b"
    assert ranges(["layers.3"]) == "layers.3"
    assert ranges(["8", "7", "6"]) == "8, 7, 6"


def test_long_lists_are_cut_with_their_length() -> None:
    names = [f"operator {letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    shown = ranges(names)
    assert len(shown) <= LONGEST_LIST
    assert shown.startswith("operator a, operator b")
    assert shown.endswith("... (26 layers)")


def test_chunks_of_a_stage_stand_beside_each_other():
    first = (("embedding", "layers.0"), ("layers.6", "layers.7", "head"))
    second = (("layers.1", "layers.2"), ("layers.4", "layers.5"))
    assert chunk_ranges([first]) == "embedding, layers.0 | layers.6-7, head"
    assert chunk_ranges([second]) == "layers.1-2 | layers.4-5"


def test_chunks_of_neighbours_are_one_range_also_where_the_pipeline_comes_back():
    round_ = [(("layers.0",), ("layers.2",)), (("layers.1",), ("layers.3",))]
    up = [(("layers.0",), ("layers.3",)), (("layers.1",), ("layers.2",))]
    assert chunk_ranges(round_) == chunk_ranges(up) == "layers.0-1 | layers.2-3"
    assert chunk_ranges([(("layers.0",),), (("layers.1",),)]) == "layers.0-1"


def test_many_chunks_are_cut_short():
    many = [tuple((f"layers.{4 * chunk}",) for chunk in range(20))]
    assert chunk_ranges(many) == "layers.0 | layers.4 | layers.8 | layers.12 | ... (20 chunks)"
