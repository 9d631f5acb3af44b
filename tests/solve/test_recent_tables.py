"""Tables that are kept while there is room for them."""

import pytest

from nest.solve.dp import stages
from nest.solve.dp.stages import RecentTables


def test_tables_serve_what_is_as_fast_and_those_used_longest_ago_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MOST_BYTES", 20)
    tables, made = RecentTables[str](), list[str]()

    def asked(key: str, limit: float) -> tuple[str, bool]:
        def make() -> tuple[str, int]:
            made.append(f"{key} {limit:g}")
            return made[-1], 10

        return tables.of(key, limit, make)

    assert asked("a", 2.0) == ("a 2", True)
    assert asked("a", 1.0) == ("a 2", False)
    assert asked("a", 2.0) == ("a 2", True)
    assert asked("a", 3.0) == ("a 3", True)  # In place of those of 2 seconds, whose bytes are free again.
    asked("b", 1.0)
    asked("a", 3.0)
    asked("c", 1.0)  # There is room for two: those of `b` were used longest ago.
    asked("a", 3.0)
    asked("b", 1.0)
    assert made == ["a 2", "a 3", "b 1", "c 1", "b 1"]


def test_tables_that_are_too_large_for_the_room_are_kept_until_others_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stages, "MOST_BYTES", 20)
    tables = RecentTables[int]()
    assert tables.of("large", 1.0, lambda: (6, 50)) == (6, True)
    assert tables.of("large", 1.0, lambda: (9, 50)) == (6, True)
    tables.of("other", 1.0, lambda: (7, 1))
    assert tables.of("large", 1.0, lambda: (8, 50)) == (8, True)
