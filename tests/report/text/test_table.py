"""Tables and layer lists."""

from nest.report.decisions import LONGEST_LIST, ranges
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
