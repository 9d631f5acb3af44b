"""The constraint language: what it says, and what it refuses."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from nest.spec.constraints import DEEPEST, LONGEST, PLAN_NAMES, Constraint, equals, parse

VALUES: dict[str, int | float | str | bool] = {
    "tp": 8,
    "cp": 1,
    "pp": 4,
    "dp": 6,
    "zero": 2,
    "schedule": "1f1b",
    "micro_batch": 2,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("tp * cp <= 8", True),
        ("dp % 4 == 0", False),
        ("1 < pp <= 4", True),
        ("1 < pp < 4", False),
        ("pp >= 4 >= cp >= 1", True),
        ("pp >= 5 or 5 <= pp", False),
        ("pp > 4 or 4 < pp", False),
        ("tp in [2, 4, 8]", True),
        ("tp not in (2, 4, 8)", False),
        ("pp in {1, 4}", True),
        ('schedule == "1f1b"', True),
        ("schedule in ['gpipe', 'nest']", False),
        ("not tp == 8", False),
        ("tp == 1 or pp > 1 and dp > 1", True),
        ("(tp == 1 or pp > 1) and dp < 1", False),
        ("dp // 4 == 1", True),
        ("dp / 4 == 1.5", True),
        ("-tp + 9 - cp == 0", True),
        ("tp != cp", True),
        ("True", True),
        ("not False", True),
        ("  zero >= 1  # sharded", True),
    ],
)
def test_what_it_says(text: str, holds: bool) -> None:
    constraint = parse(text)
    assert constraint.holds(VALUES) is holds
    assert constraint.text == text.strip()


def test_names_and_stage_choices() -> None:
    assert parse("tp * cp <= pp").names() == {"tp", "cp", "pp"}
    assert not parse("tp * cp <= pp").per_stage
    assert parse("zero == 1 or pp == 1").per_stage
    assert parse("recompute in ['full']").names() == {"recompute"}
    assert {"pp", "dp", "replicas", "micro_batch", "micro_batches", "devices"} <= PLAN_NAMES


def test_functions() -> None:
    assert parse('same_stage("embedding", "head")').same_stage == ("embedding", "head")
    assert parse(" uniform(zero) ").uniform == "zero"
    assert parse("uniform(recompute)").uniform == "recompute"
    assert parse("uniform(zero)").holds({})
    assert parse("uniform(zero)").names() == frozenset()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not an expression"),
        ("tp <=", "is not an expression"),
        ("tp <= 8; pp == 1", "is not an expression"),
        ("tp\0 <= 8", "is not an expression"),
        ("(" * 300 + "1" + ")" * 300, "is not an expression"),
        ("tp", "neither true nor false; compare it"),
        ("5", "neither true nor false"),
        ('__import__("os").system("exit")', "calls something unknown"),
        ("open('x') == 1", "`open\\('x'\\)` is not allowed here"),
        ("tp.real == 8", r"`tp\.real` is not allowed here"),
        ("tp[0] == 8", r"`tp\[0\]` is not allowed here"),
        ("[x for x in tp] == 8", "is not allowed here"),
        ("(tp := 2) == 2", r"`\(tp := 2\)` is not allowed here"),
        ("tp ** 9 == 1", r"`tp \*\* 9` is not allowed here"),
        ("tp == 8 if pp else cp", "is not allowed here"),
        ("tp == None", "`None` is not allowed here"),
        ("tp in [pp, 1]", "is not allowed here"),
        ("~tp == 1", "`~tp` is not allowed here"),
        ('same_stage("embedding")', "two or more quoted layer names"),
        ("same_stage(embedding, head)", "two or more quoted layer names"),
        ("uniform(tp)", "uniform takes one of recompute, zero"),
        ('same_stage("a", "b") and tp == 1', "stands alone"),
        ("1 / 0 == 1", "cannot be computed: division by zero"),
        ("'a' * 99999999999 == 'b'", r"cannot be computed: \* takes numbers, not 'a'"),
        ("'%99999999999d' % 1 == ''", "cannot be computed: % takes numbers"),
        ("1 < 'a'", "cannot be computed: '<' not supported"),
        ("tp == 1 " + "or tp == 1 " * 200, f"longer than {LONGEST} characters"),
        ("not " * 100 + "tp == 1", f"more than {DEEPEST} levels deep"),
    ],
)
def test_what_it_refuses(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as error:
        parse(text)
    assert str(error.value).startswith("constraint `")
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "text", ["8 / (cp - 1) > 1", "tp % (cp - 1) == 0", "tp < 'a'", "tp in 8", "tp + schedule == 1"]
)
def test_values_that_cannot_be_combined(text: str) -> None:
    with pytest.raises(InputError, match="cannot be computed"):
        parse(text).holds(VALUES)


@pytest.mark.longer
@given(st.text(max_size=60) | st.text("tpcz()[]\"'+-*/%<>=!, 0123456789notandri\n", max_size=60))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    try:
        constraint = parse(text)
    except InputError:
        return
    assert isinstance(constraint, Constraint)


@st.composite
def conditions(draw: st.DrawFn) -> str:
    names = st.sampled_from(["tp", "pp", "dp", "micro_batch"])
    atoms = names | st.integers(1, 9).map(str)
    numbers = st.recursive(
        atoms,
        lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "/"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        max_leaves=4,
    )
    compared = st.tuples(numbers, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), numbers).map(" ".join)
    return draw(
        st.recursive(
            compared,
            lambda inner: st.tuples(inner, st.sampled_from([" and ", " or ", " or not "]), inner).map(
                lambda parts: f"({''.join(parts)})"
            ),
            max_leaves=4,
        )
    )


@pytest.mark.longer
@given(conditions())
def test_it_agrees_with_python_where_both_say_the_same(text: str) -> None:
    """The language is a part of Python's; Python's own evaluation is the certificate."""
    code = compile(ast.parse(text, mode="eval"), "<constraint>", "eval")
    try:
        expected = bool(eval(code, {"__builtins__": {}}, dict(VALUES)))
    except ZeroDivisionError:
        with pytest.raises(InputError, match="cannot be computed"):
            parse(text).holds(VALUES)
    else:
        assert parse(text).holds(VALUES) is expected


@given(st.sampled_from(["tp", "schedule"]), st.integers(1, 9) | st.sampled_from(["1f1b", 'a"b', "a'b"]))
def test_equality_reads_back(name: str, value: int | str) -> None:
    made = equals(name, value)
    assert parse(made.text) == made
    assert made.holds({name: value})
    assert not made.holds({name: "something else"})
