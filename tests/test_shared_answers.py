"""Tests of one run share answers, and none compares an answer with itself."""

from pathlib import Path

import pytest

from nest.whatif import disk_cache
from tests import shared_answers


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Asks as a test of that name; the answers are 1, 2, ..., each of which takes long."""
    monkeypatch.setattr(shared_answers, "LEAST", -1.0)
    monkeypatch.setenv(shared_answers.FOLDER, str(tmp_path))
    answers = iter(range(1, 9))

    def asked(test: str) -> int:
        monkeypatch.setenv("PYTEST_CURRENT_TEST", f"tests/whatif/{test} (call)")
        return disk_cache.kept(("solve", 0), "a problem", lambda: next(answers), int)

    return asked


def test_another_test_has_the_answer_and_the_same_one_has_another(ask) -> None:
    assert [ask(test) for test in ("a", "b", "b", "c", "a")] == [1, 1, 2, 2, 3]


def test_a_test_that_replaces_a_part_of_nest_shares_nothing(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [ask("a"), ask("b")] == [1, 1]
    monkeypatch.setattr(disk_cache, "MOST", 1)
    assert ask("c") == 2


def test_what_a_process_keeps_of_its_own_is_tested_alone(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_answers, "SHARING", ("tests/cli/",))
    assert [ask("a"), ask("b")] == [1, 2]


def test_a_store_of_its_own_is_the_only_one(ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEST_CACHE", str(tmp_path / "own"))
    assert [ask("a"), ask("a"), ask("b")] == [1, 1, 1]
