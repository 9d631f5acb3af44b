"""Axes: what views and operators say of dimensions, on any sizes; no PyTorch takes part."""

from math import prod
from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from nest_torch.program.axes import Atom, aligned, fresh, leaves, part, reshape, size, unify

sizes = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@given(sizes)
def test_merging_and_splitting_again_gives_the_same_axes(lengths: list[int]) -> None:
    dims = tuple(fresh(length) for length in lengths)
    (merged,) = reshape(dims, [prod(lengths)])
    assert size(merged) == prod(lengths)
    assert reshape((merged,), lengths) == dims


@given(sizes, st.randoms())
def test_reshaped_dimensions_have_the_sizes_asked_for(lengths: list[int], random: Random) -> None:
    wanted = list(lengths)
    random.shuffle(wanted)
    assert [size(dim) for dim in reshape(tuple(fresh(length) for length in lengths), wanted)] == wanted


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_a_split_is_seen_wherever_the_axis_is(outer: int, inner: int, other: int) -> None:
    whole, alias = fresh(outer * inner), fresh(outer * inner)
    unify(whole, alias)
    heads, channels = reshape((whole,), [outer, inner])
    assert leaves(alias) == (*heads, *channels)
    assert reshape((alias, fresh(other)), [outer, inner, other])[:2] == (heads, channels)


@given(st.integers(2, 40), st.integers(2, 40))
def test_unified_dimensions_of_one_size_are_one_axis(one: int, other: int) -> None:
    left, right = fresh(one * other), (*fresh(other), *fresh(one))
    unify(left, right)
    assert leaves(left) == leaves(right)
    assert size(left) == one * other


def test_names_survive_a_merge_and_inputs_are_kept() -> None:
    named, plain = Atom(5, "sequence", fixed=True), fresh(5)
    unify(plain, (named,))
    (found,) = leaves(plain)
    assert (found.name, found.fixed) == ("sequence", True)


@given(st.integers(2, 5), st.integers(2, 5))
def test_a_part_is_the_inner_factor_but_never_of_an_input(count: int, length: int) -> None:
    assume(count * length > length)
    whole = fresh(count * length)
    assert part(whole, length) == leaves(whole)[1:]
    tokens = (Atom(count * length, "sequence", fixed=True),)
    assert leaves(part(tokens, length)) != leaves(tokens)
    assert leaves(tokens) == tokens


def test_broadcast_operands_lie_in_line_from_behind() -> None:
    rows, columns = fresh(3), fresh(4)
    row = fresh(4)
    shown = aligned((), [3, 4], [(rows, columns), (row,), ((), row)])
    assert [leaves(dim) for dim in shown] == [leaves(rows), leaves(columns)]
    assert leaves(row) == leaves(columns)
