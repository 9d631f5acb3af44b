import pytest

from tests.conformance.consumer import consume, needs, refusal, versions


def test_the_answer_is_what_the_script_answers_whatever_else_it_prints() -> None:
    assert consume("print('noise')\nanswer([given['a'] + 1, 'ü'])\nprint('more')", {"a": 1}) == [2, "ü"]


def test_a_failing_script_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="no such thing"):
        consume("raise ValueError('no such thing')")


def test_a_refusal_is_told_with_its_kind() -> None:
    assert refusal("raise ValueError(given)", "why") == "ValueError: why"
    assert refusal("assert given == 'why'", "why") is None


def test_missing_consumers_are_skipped_with_the_remedy() -> None:
    assert versions("no-such-distribution-here") == (None,)
    with pytest.raises(pytest.skip.Exception, match="NEST_CONFORMANCE_PYTHON"):
        needs("no-such-distribution-here")
