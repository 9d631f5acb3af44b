"""Every mistake a strategy can make is found by the check that is there for it."""

from collections.abc import Callable, Sequence
from itertools import count
from math import nan
from typing import Any

import pytest
from attrs import evolve

from nest.graph import Block, Collective, Communication, Operator, OperatorGraph, Tensor
from nest.hooks.protocols import Strategy, StrategyContext
from nest.hooks.registry import registry
from nest.testing import assert_conforms, check_strategy

Change = Callable[[Block], Any]


class Faulty:
    """A built-in strategy whose blocks are spoilt."""

    def __init__(self, change: Change, name: str = "tp") -> None:
        self.sound: Strategy = registry().strategies()[name]
        self.name = name
        self.after = self.sound.after
        self.change = change

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        return self.sound.degrees(block, context)

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Any:
        return self.change(self.sound.apply(block, degree, context))


def failed(strategy: Any) -> dict[str, str]:
    return {finding.check: finding.told for finding in check_strategy(strategy) if not finding.passed}


def each(change: Callable[[Operator], Operator | None]) -> Change:
    """Spoil every operator; None leaves it out."""

    def spoilt(block: Block) -> Block:
        def replaced(operator: Operator) -> tuple[Operator, ...]:
            changed = change(operator)
            return () if changed is None else (changed,)

        return evolve(block, graph=block.graph.map_operators(replaced))

    return spoilt


def calls(change: Callable[[Communication], Communication]) -> Change:
    """Spoil every call of every collective."""

    def spoilt(operator: Operator) -> Operator:
        if operator.collective is None:
            return operator
        forward, backward = (
            tuple(change(call) for call in way) for way in (operator.collective.forward, operator.collective.backward)
        )
        return evolve(operator, collective=Collective(forward, backward))

    return each(spoilt)


def is_sum(operator: Operator) -> bool:
    return operator.collective is not None and bool(operator.outputs)


def is_gradient_sum(operator: Operator) -> bool:
    return operator.collective is not None and not operator.outputs


def copied_not_summed(operator: Operator) -> Operator:
    return evolve(operator, kind="elementwise", collective=None) if is_sum(operator) else operator


def renamed(block: Block) -> Block:
    def other(tensor: Tensor) -> Tensor:
        return evolve(tensor, name=tensor.name.replace("/hidden", "/state"))

    def change(operator: Operator) -> Operator:
        return evolve(
            operator,
            inputs=tuple(map(other, operator.inputs)),
            outputs=tuple(map(other, operator.outputs)),
            saves=tuple(name.replace("/hidden", "/state") for name in operator.saves),
        )

    changed: Block = each(change)(block)
    return changed


numbers = count()


def unsteady(operator: Operator) -> Operator:
    return evolve(operator, name=f"{operator.name} {next(numbers)}") if operator.collective is not None else operator


def favoured(operator: Operator) -> Operator:
    return evolve(operator, backward_flops_ratio=3.0) if operator.layer == "layers.1" else operator


def hoarding(operator: Operator) -> Operator:
    def wide(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(evolve(tensor, itemsize=64.0) for tensor in tensors)

    return evolve(operator, inputs=wide(operator.inputs), outputs=wide(operator.outputs))


def shrunk(operator: Operator) -> Operator:
    parameters = tuple(
        evolve(p, shape=tuple((axis, max(1, size // 2)) for axis, size in p.shape)) for p in operator.parameters
    )
    return evolve(operator, parameters=parameters)


def misread(operator: Operator) -> Operator:
    inputs = tuple(evolve(tensor, shape=(*tensor.shape, ("strange", 2))) for tensor in operator.inputs)
    return evolve(operator, inputs=inputs) if operator.kind == "norm" else operator


FAULTS: dict[str, tuple[Change, str]] = {
    "forgets to add parts of sums up": (each(copied_not_summed), "partial sums are completed"),
    "forgets to add gradients up": (
        each(lambda o: None if is_gradient_sum(o) else o),
        "partial gradients are added up",
    ),
    "sends half": (calls(lambda c: evolve(c, bytes=c.bytes / 2)), "collectives carry what the tensors hold"),
    "sends nonsense": (calls(lambda c: evolve(c, bytes=nan)), "collectives carry what the tensors hold"),
    "calls what is not": (calls(lambda c: evolve(c, kind="broadcast")), "collectives carry what the tensors hold"),
    "calls no times": (calls(lambda c: evolve(c, count=0)), "collectives carry what the tensors hold"),
    "hides under nothing": (
        each(lambda o: evolve(o, collective=evolve(o.collective, under="idle")) if o.collective is not None else o),
        "collectives hide under what computes",
    ),
    "hides under more than there is": (
        each(
            lambda o: (
                evolve(o, collective=evolve(o.collective, under=f"{o.layer}/norm", share=1.5))
                if o.collective is not None and o.layer == "head"
                else o
            )
        ),
        "collectives hide under what computes",
    ),
    "names no axis": (calls(lambda c: evolve(c, axis="pp")), "collectives have ranks to run on"),
    "declares an axis that is not": (
        lambda block: evolve(block, replicated=(("dense", "pp"),)),
        "collectives have ranks to run on",
    ),
    "loses parameters": (each(shrunk), "parameters of all ranks add up"),
    "declares shares as copies": (
        lambda block: evolve(block, replicated=(("dense", "tp"),)),
        "parameters of all ranks add up",
    ),
    "loses work": (
        each(lambda o: evolve(o, flops_per_point=o.flops_per_point / 2)),
        "work and activations of all ranks add up",
    ),
    "does not say what it divides": (each(lambda o: evolve(o, split=())), "`split` says who divides the work"),
    "says it divides all": (
        each(lambda o: o if o.collective is not None else evolve(o, split=("tp",))),
        "`split` says who divides the work",
    ),
    "has work without end": (
        each(lambda o: evolve(o, flops_per_point=nan)),
        "sizes and amounts are finite and not negative",
    ),
    "saves what is not": (
        each(lambda o: evolve(o, saves=("nothing",))),
        "sizes and amounts are finite and not negative",
    ),
    "renames what others read": (renamed, "layers and the tensors between them are kept"),
    "forgets a layer": (
        lambda block: evolve(
            block,
            graph=OperatorGraph(
                tuple(o for o in block.graph.operators if o.layer != "head"),
                block.graph.layers[:-1],
                block.graph.blocks,
            ),
        ),
        "layers and the tensors between them are kept",
    ),
    "favours a layer": (each(favoured), "equal layers are treated alike"),
    "reads what is not written": (each(misread), "tensors agree wherever they are handled"),
    "hoards": (each(hoarding), "memory of a rank does not grow"),
    "drops operators": (each(lambda o: None if o.kind == "loss" else o), "no operator is lost"),
    "depends on the hour": (each(unsteady), "it does the same every time"),
    "returns nothing": (lambda block: None, "it applies"),
    "records nothing": (lambda block: evolve(block, degrees=()), "it applies"),
    "takes other samples": (lambda block: evolve(block, samples=3 * block.samples), "it applies"),
    "grows too wide": (lambda block: block.with_axis("more", 3), "it applies"),
}


@pytest.mark.longer
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_the_check_for_it(fault: str) -> None:
    change, expected = FAULTS[fault]
    assert expected in failed(Faulty(change))


def one_way(operator: Operator) -> Operator:
    """A reduce-scatter whose gradients stay where they are."""
    if operator.collective is None or operator.collective.forward[:1] == ():
        return operator
    scatters = operator.collective.forward[0].kind == "reduce_scatter"
    return evolve(operator, collective=evolve(operator.collective, backward=())) if scatters else operator


@pytest.mark.longer
def test_what_is_scattered_is_gathered_in_the_backward_pass() -> None:
    assert list(failed(Faulty(each(one_way), "sp"))) == ["gradients go back the way values came"]


@pytest.mark.longer
def test_ranks_that_hold_parameters_in_common_must_say_so() -> None:
    forgetful = Faulty(lambda block: evolve(block, replicated=()), "batch")
    assert list(failed(forgetful)) == ["parameters held in common are declared"]


@pytest.mark.longer
def test_what_changes_outside_the_regions_it_names_is_found() -> None:
    claiming: Any = Faulty(lambda block: block)
    claiming.within = "expert"
    assert list(failed(claiming)) == ["nothing changes outside the regions"]


def raising(error: BaseException) -> Change:
    def change(block: Block) -> Block:
        raise error

    return change


@pytest.mark.longer
@pytest.mark.parametrize("error", [ValueError("seven"), SystemExit(3), KeyError("heads")])
def test_what_is_raised_is_told(error: BaseException) -> None:
    found = failed(Faulty(raising(error)))
    assert list(found) == ["it applies"]
    assert f"it raised {type(error).__name__}" in found["it applies"]
    assert "two levels" in found["it applies"] or "one level" in found["it applies"]


@pytest.mark.parametrize("degrees", [[0, 1, 2], [True, 2], [1, 2.0], [2, 4], [1, 4, 2], [1, 2, 2], None])
def test_degrees_are_whole_numbers_from_one(degrees: Any) -> None:
    strategy = Faulty(lambda block: block)
    strategy.degrees = lambda block, context: degrees  # type: ignore[method-assign]
    assert "degrees are whole numbers from 1" in failed(strategy)


def test_one_that_never_takes_part_was_not_tried() -> None:
    strategy = Faulty(lambda block: block)
    strategy.degrees = lambda block, context: [1]  # type: ignore[method-assign]
    assert list(failed(strategy)) == ["a degree above 1 is offered somewhere"]


@pytest.mark.longer
def test_everything_that_failed_is_in_one_message() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_conforms(Faulty(calls(lambda call: evolve(call, bytes=-1.0, axis="pp"))))
    text = str(caught.value)
    assert text.startswith("'tp' does not conform:")
    assert "collectives have ranks to run on" in text
    assert "collectives carry what the tensors hold" in text
    assert "more of" in text


@pytest.mark.longer
def test_padding_that_is_declared_is_put_up_with() -> None:
    padded = Faulty(each(lambda o: evolve(o, flops_per_point=o.flops_per_point * (1.25 if o.split else 1.0))))
    assert list(failed(padded)) == ["`split` says who divides the work"]
    padded.padding = 0.25  # type: ignore[attr-defined]
    assert failed(padded) == {}
