"""Mistakes of a strategy of two axes that do not have its name are found axis by axis."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from attrs import evolve

from nest.graph import Axis, Block, Collective, Communication, Operator, Shape, Tensor, scale
from nest.hooks.protocols import StrategyContext
from nest.testing import assert_conforms, check_strategy
from nest_testing.samples import SAMPLE_CLUSTERS, SAMPLE_MODELS
from testing_tests.two_axes import COLUMNS, ROWS, Grid
from tests.seeds import few

Change = Callable[[Block], Block]


class Mistaken(Grid):
    """The sound strategy, and then a mistake."""

    def __init__(self, change: Change, telling: bool) -> None:
        super().__init__(telling)
        self.change = change

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        return self.change(super().apply(block, degree, context))


def failed(strategy: Any) -> dict[str, str]:
    found = check_strategy(strategy, models=SAMPLE_MODELS[:2], clusters=SAMPLE_CLUSTERS[:1])
    return {finding.check: finding.told for finding in found if not finding.passed}


def each(change: Callable[[Operator, Block], Operator | None], where: Callable[[Operator], bool]) -> Change:
    """Spoil the operators that `where` picks; None leaves one out."""

    def spoilt(block: Block) -> Block:
        def replaced(operator: Operator) -> Iterable[Operator]:
            changed = change(operator, block) if where(operator) else operator
            return () if changed is None else (changed,)

        return evolve(block, graph=block.graph.map_operators(lambda operator: tuple(replaced(operator))))

    return spoilt


def is_sum(operator: Operator) -> bool:
    return operator.collective is not None and any(c.kind == "all_reduce" for c in operator.collective.forward)


def is_gradient_sum(operator: Operator) -> bool:
    return operator.collective is not None and not operator.outputs


def is_gather(operator: Operator) -> bool:
    return operator.collective is not None and any(c.kind == "all_gather" for c in operator.collective.forward)


def is_product(operator: Operator) -> bool:
    return operator.kind == "matmul" and bool(operator.parameters)


def by_rows(operator: Operator) -> bool:
    return is_product(operator) and (ROWS in operator.split or "grid" in operator.split)


def calls(where: Callable[[Operator], bool], way: str = "both", **keys: Any) -> Change:
    """Change something about calls, forward, backward or both ways."""

    def change(operator: Operator, block: Block) -> Operator:
        def spoilt(made: tuple[Communication, ...]) -> tuple[Communication, ...]:
            values = {key: value(block) if callable(value) else value for key, value in keys.items()}
            share = values.pop("share", None)
            return tuple(evolve(c, **values, **({"bytes": c.bytes / share} if share else {})) for c in made)

        assert operator.collective is not None
        forward, backward = operator.collective.forward, operator.collective.backward
        return evolve(
            operator,
            collective=Collective(
                forward if way == "backward" else spoilt(forward), backward if way == "forward" else spoilt(backward)
            ),
        )

    return each(change, where)


def without_backward(operator: Operator, block: Block) -> Operator:
    assert operator.collective is not None
    return evolve(operator, collective=evolve(operator.collective, backward=()))


def copied(operator: Operator, block: Block) -> Operator:
    return evolve(operator, kind="elementwise", collective=None)


def summed_twice(operator: Operator, block: Block) -> Operator:
    assert operator.collective is not None
    again = tuple(evolve(call, axis=COLUMNS) for call in operator.collective.forward)
    return evolve(operator, collective=evolve(operator.collective, forward=(*operator.collective.forward, *again)))


def scaled(tensors: Iterable[Any], axes: Iterable[str], factor: int) -> tuple[Any, ...]:
    def grown(shape: Shape) -> Shape:
        for axis in axes:
            shape = scale(shape, axis, factor)
        return shape

    return tuple(evolve(tensor, shape=grown(tensor.shape)) for tensor in tensors)


def whole_parameters(operator: Operator, block: Block) -> Operator:
    widths = ("heads", "kv_heads", "ffn", "vocab")
    return evolve(operator, parameters=scaled(operator.parameters, widths, block.degree(ROWS)))


def divided_parameters(operator: Operator, block: Block) -> Operator:
    count = block.degree(COLUMNS)
    parameters = tuple(
        evolve(p, shape=tuple((axis, size // count if axis == "hidden" else size) for axis, size in p.shape))
        for p in operator.parameters
    )
    return evolve(operator, parameters=parameters)


def whole_work(operator: Operator, block: Block) -> Operator:
    return evolve(operator, space=scale(operator.space, "sequence", block.degree(COLUMNS)))


def whole_work_untold(operator: Operator, block: Block) -> Operator:
    return evolve(whole_work(operator, block), split=tuple(name for name in operator.split if name == ROWS))


def twice_divided_work(operator: Operator, block: Block) -> Operator:
    return evolve(operator, flops_per_point=operator.flops_per_point / block.degree(ROWS))


def split_by(*names: str) -> Callable[[Operator, Block], Operator]:
    return lambda operator, block: evolve(operator, split=names)


def ungathered(block: Block) -> Block:
    """Attention reads a rank's own keys and values."""
    names = {t.name: o.inputs[0].name for o in block.graph.operators if is_gather(o) for t in o.outputs}
    own = {o.inputs[0].name: o.inputs[0] for o in block.graph.operators if is_gather(o)}

    def change(operator: Operator) -> tuple[Operator, ...]:
        inputs = tuple(own[names[t.name]] if t.name in names else t for t in operator.inputs)
        saves = tuple(names.get(name, name) for name in operator.saves)
        return () if is_gather(operator) else (evolve(operator, inputs=inputs, saves=saves),)

    return evolve(block, graph=block.graph.map_operators(change))


def kept_whole(operator: Operator, block: Block) -> Operator:
    def whole(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
        return scaled(tensors, ("sequence",), block.degree(COLUMNS))

    return evolve(operator, inputs=whole(operator.inputs), outputs=whole(operator.outputs))


def axes(**degrees: Callable[[Block], int]) -> Change:
    def change(block: Block) -> Block:
        found = (Axis(a.name, degrees[a.name](block) if a.name in degrees else a.degree) for a in block.axes)
        return evolve(block, axes=tuple(found))

    return change


def replicated(*names: str) -> Change:
    return lambda block: evolve(block, replicated=tuple(("dense", name) for name in names))


def both(*changes: Change) -> Change:
    def change(block: Block) -> Block:
        for each_change in changes:
            block = each_change(block)
        return block

    return change


MISTAKES: dict[str, tuple[Change, str]] = {
    "partial sums are not added up": (each(copied, is_sum), "partial sums are completed"),
    "partial sums are added up over the other axis": (calls(is_sum, axis=COLUMNS), "partial sums are completed"),
    "partial sums are added up over both axes": (each(summed_twice, is_sum), "partial sums are completed"),
    "partial sums are added up over both axes, which hold nothing alike": (
        both(each(summed_twice, is_sum), replicated()),
        "partial sums are completed",
    ),
    "partial sums are gathered": (calls(is_sum, kind="all_gather"), "partial sums are completed"),
    "partial sums are scattered, and left whole": (
        calls(is_sum, kind="reduce_scatter"),
        "collectives carry what the tensors hold",
    ),
    "partial sums are exchanged": (calls(is_sum, kind="all_to_all"), "partial sums are completed"),
    "gradients are not added up": (each(lambda o, b: None, is_gradient_sum), "partial gradients are added up"),
    "gradients are added up over the other axis": (
        calls(is_gradient_sum, axis=COLUMNS),
        "partial gradients are added up",
    ),
    "gradients of keys and values stay where they are": (
        each(without_backward, is_gather),
        "partial gradients are added up",
    ),
    "gradients of keys and values go to the other axis": (
        calls(is_gather, "backward", axis=ROWS),
        "partial gradients are added up",
    ),
    "keys and values are gathered over the other axis": (
        calls(is_gather, axis=ROWS), "collectives carry what the tensors hold",
    ),
    "keys and values are not gathered": (ungathered, "attention sees all keys"),
    "keys and values are summed": (
        calls(is_gather, "forward", kind="all_reduce"),
        "collectives carry what the tensors hold",
    ),
    "half is sent": (calls(is_sum, share=2), "collectives carry what the tensors hold"),
    "a share is gathered for the whole": (
        calls(is_gather, share=lambda block: block.degree(COLUMNS)),
        "collectives carry what the tensors hold",
    ),
    "an axis of another block": (calls(is_sum, axis="diagonal"), "collectives have ranks to run on"),
    "the name of the strategy for an axis": (calls(is_sum, axis="grid"), "collectives have ranks to run on"),
    "work is not divided by columns": (each(whole_work, is_product), "`split` says who divides the work"),
    "work is not divided by columns, nor said to be": (
        each(whole_work_untold, is_product),
        "operators work on what they read, write and hold",
    ),
    "work is divided twice by rows": (each(twice_divided_work, by_rows), "work and activations of all ranks add up"),
    "nobody is said to divide": (each(split_by(), by_rows), "`split` says who divides the work"),
    "one axis is not said to divide": (each(split_by(COLUMNS), by_rows), "`split` says who divides the work"),
    "the strategy and an axis are said to divide": (
        each(split_by("grid", ROWS), by_rows),
        "`split` says who divides the work",
    ),
    "parameters are not divided": (each(whole_parameters, is_product), "parameters held in common are declared"),
    "parameters are not divided, and said to be copies": (
        both(each(whole_parameters, is_product), replicated(ROWS, COLUMNS)),
        "operators work on what they read, write and hold",
    ),
    "parameters are divided by both axes": (each(divided_parameters, is_product), "parameters of all ranks add up"),
    "copies are not declared": (replicated(), "parameters held in common are declared"),
    "copies are declared along the other axis": (replicated(ROWS), "parameters held in common are declared"),
    "shares are declared as copies": (replicated(ROWS, COLUMNS), "parameters of all ranks add up"),
    "norms keep the whole sequence": (
        each(kept_whole, lambda operator: operator.kind == "norm"),
        "tensors agree wherever they are handled",
    ),
    "axes have each other's ranks": (
        axes(rows=lambda block: block.degree(COLUMNS), columns=lambda block: block.degree(ROWS)),
        "collectives carry what the tensors hold",
    ),
    "an axis has twice as many ranks": (axes(columns=lambda block: 2 * block.degree(COLUMNS)), "it applies"),
    "an axis has half as many ranks": (axes(columns=lambda block: block.degree(COLUMNS) // 2), "it applies"),
    "an axis is missing": (lambda block: evolve(block, axes=block.axes[:1], replicated=()), "it applies"),
}  # fmt: skip


ACROSS = {
    "partial sums are added up over the other axis": "partial sums are completed",
    "gradients are added up over the other axis": "partial gradients are added up",
    "copies are declared along the other axis": "partial sums are completed",
}


@pytest.mark.longer
@pytest.mark.parametrize("mistake", ACROSS)
def test_axes_of_as_many_ranks_are_told_apart_by_what_they_hold(mistake: str) -> None:
    """By number alone rows are as good as columns there."""
    square = Mistaken(MISTAKES[mistake][0], telling=True)
    square.degrees = lambda block, context: (1, 4) if block.width == 1 else (1,)  # type: ignore[method-assign]
    assert ACROSS[mistake] in failed(square)


@pytest.mark.longer
@pytest.mark.parametrize("telling", [True, False])
def test_the_sound_one_conforms(telling: bool) -> None:
    assert failed(Grid(telling)) == {}


@pytest.mark.longer
def test_the_sound_one_conforms_on_every_sample() -> None:
    assert_conforms(Grid())


@pytest.mark.parametrize("telling", few([True, False], True))
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_by_the_check_for_it(mistake: str, telling: bool) -> None:
    change, expected = MISTAKES[mistake]
    assert expected in failed(Mistaken(change, telling))
