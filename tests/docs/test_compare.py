"""The comparison of documents with reality passes rounding and nothing else."""

import pytest

from tests.docs.compare import same, same_line


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("step time  60.51 s", "step time 60.51 s"),
        ("step time 60.51 s", "step time 60.52 s"),
        ("bubble 5.8%, rest 94.2%", "bubble 5.9%, rest 94.1%"),
        ("1.258e+04", "1.259e+04"),
        ("stage  layers", "stage   layers"),
        ("-----  ---", "------  --"),
    ],
)
def test_rounding_passes(expected: str, printed: str) -> None:
    assert same_line(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("step time 60.51 s", "step time 60.53 s"),
        ("step time 60.51 s", "step time 60.51 ms"),
        ("tp 4, pp 4", "tp 4, pp 8"),
        ("embedding, layers.0-18", "embedding, layers.0-19"),
        ("1.258e+04", "1.258e+05"),
        ("99.8%", "99.8"),
        ("replicas 8", "replicas 8.0"),
    ],
)
def test_everything_else_fails(expected: str, printed: str) -> None:
    assert not same_line(expected, printed)


def test_an_elision_stands_for_any_lines_and_no_others() -> None:
    assert same(["a", "...", "d"], ["a", "b", "c", "d"])
    assert same(["a", "...", "d"], ["a", "d"])
    assert not same(["a", "...", "d"], ["a", "b"])
    assert not same(["a", "b"], ["a", "b", "c"])
    assert not same(["a", "b"], ["a"])
