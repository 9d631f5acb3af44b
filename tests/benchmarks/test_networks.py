"""What planning on levels loses on a network: the measurement of a problem, and the table of many."""

import pytest

from benchmarks.networks import __main__ as command
from benchmarks.networks.measure import Losses, measured
from benchmarks.networks.table import table, without

FOUND = [
    Losses("torus or mesh", 0.1, 0.05, 1e-9, True),
    Losses("torus or mesh", None, 0.01, 0.0, True),
    Losses("measured matrix", 0.4, 0.0, 0.02, False),
]


def test_the_table_has_a_row_for_each_kind_and_one_for_all() -> None:
    lines = table(FOUND, moved=True)
    assert lines[2:] == [
        "| torus or mesh | 2 | 10.0% / 10.0% / 10.0% | 3.0% / 3.0% / 5.0% | 0.0% / 0.0% / 0.0% | 2 |",
        "| measured matrix | 1 | 40.0% / 40.0% / 40.0% | 0.0% / 0.0% / 0.0% | 2.0% / 2.0% / 2.0% | 0 |",
        "| all | 3 | 25.0% / 25.0% / 40.0% | 2.0% / 1.0% / 5.0% | 0.7% / 0.0% / 2.0% | 2 |",
    ]
    assert {line.count("|") for line in lines} == {7}
    assert {line.count("|") for line in table(FOUND, moved=False)} == {6}
    assert without(FOUND) == 1


@pytest.mark.longer
def test_no_plan_on_levels_is_better_than_the_optimum_and_some_are_worse() -> None:
    found = [measured(seed, "ring, torus, mesh or cube, links differ", None) for seed in (0, 1, 3)]
    kept = [each for each in found if each is not None]
    assert all(each.levels is None or each.levels > -1e-9 for each in kept)
    assert all(each.here < 1e-6 for each in kept if each.proved)
    assert any(each.levels is not None and each.levels > 0.01 for each in kept)


@pytest.mark.parametrize(("here", "code"), [(0.0, 0), (0.01, 1)])
def test_a_plan_called_optimal_that_is_not_is_told_by_the_exit_code(monkeypatch, capsys, tmp_path, here, code) -> None:
    monkeypatch.setattr(command, "measured", lambda seed, kind, _: Losses(kind, 0.5, None, here, True))
    assert command.main(["--count", "1", "--output", str(tmp_path / "table.md")]) == code
    assert (tmp_path / "table.md").read_text() == capsys.readouterr().out
