"""Single checks of the kit, on the smallest thing that each must see."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from nest.graph import Axis, Block, Collective, Communication, Operator, OperatorGraph, Parameter, Tensor
from nest_testing.communication import bad_axes, bad_calls, hidden_under_nothing, unreturned
from nest_testing.conformance import kind_of
from nest_testing.conservation import lost_parameters, lost_work
from nest_testing.finding import Tally, writes

X = Tensor("x", (("batch", 1), ("sequence", 8), ("hidden", 4)))
NORM = Operator("a/norm", "a", "norm", inputs=(X,), outputs=(Tensor("y", X.shape),))


def block(collective: Collective) -> Block:
    """A norm, and a collective of what it reads over 2 ranks."""
    moved = Operator("a/move", "a", "collective", inputs=(X,), outputs=(Tensor("z", X.shape),), collective=collective)
    return Block(OperatorGraph((moved, NORM), ("a",)), 1).with_axis("ep", 2)


def call(kind: str) -> tuple[Communication, ...]:
    return (Communication(kind, X.bytes, "ep"),)


@pytest.mark.parametrize(
    ("forward", "backward", "found"),
    [
        ("all_to_all", (), True),
        ("all_to_all", call("all_to_all"), False),
        ("all_to_all", call("all_gather"), True),
        ("reduce_scatter", (), True),
        ("reduce_scatter", call("all_gather"), False),
        ("all_gather", (), False),
    ],
)
def test_what_is_exchanged_or_scattered_comes_back(
    forward: str, backward: tuple[Communication, ...], found: bool
) -> None:
    assert bool(list(unreturned(block(Collective(call(forward), backward))))) is found


@pytest.mark.parametrize(("share", "found"), [(0.0, False), (0.5, False), (1.0, False), (1.5, True), (-0.5, True)])
def test_a_collective_hides_under_no_more_than_all_of_an_operator(share: float, found: bool) -> None:
    hidden = Collective(call("all_reduce"), under="a/norm", share=share)
    assert bool(list(hidden_under_nothing(block(hidden)))) is found


WEIGHT = Parameter("weight", (("ffn", 6), ("hidden", 4)))
HALF_OF_IT = Parameter("weight", (("ffn", 3), ("hidden", 4)))
PRODUCT = Operator(
    "a/product",
    "a",
    "matmul",
    space=(("sequence", 8), ("ffn", 6), ("hidden", 4)),
    flops_per_point=2.0,
    inputs=(X,),
    outputs=(Tensor("h", (("batch", 1), ("sequence", 8), ("ffn", 6))),),
    parameters=(WEIGHT,),
    contracted=("hidden",),
)


def with_product(operator: Operator) -> Block:
    return Block(OperatorGraph((operator,), ("a",)), 1)


@pytest.mark.parametrize(("share", "found"), [(1.0, False), (0.5, True)])
def test_copies_with_samples_of_their_own_each_do_all_the_work(share: float, found: bool) -> None:
    own = evolve(PRODUCT, flops_per_point=2.0 * share)
    copies = evolve(with_product(own).with_axis("copies", 2), samples=2)
    assert bool(list(lost_work(with_product(PRODUCT), copies))) is found


@pytest.mark.parametrize(
    ("parameter", "alike", "found"), [(WEIGHT, True, False), (HALF_OF_IT, False, False), (HALF_OF_IT, True, True)]
)
def test_what_ranks_hold_in_common_counts_once(parameter: Parameter, alike: bool, found: bool) -> None:
    wide = with_product(evolve(PRODUCT, parameters=(parameter,))).with_axis("mine", 2)
    wide = wide.replicating("mine") if alike else wide
    assert bool(list(lost_parameters(with_product(PRODUCT), wide))) is found


@pytest.mark.parametrize(("axis", "degree", "found"), [("ep", 2, False), ("ep", 1, True), ("tp", 2, True)])
def test_a_collective_needs_ranks(axis: str, degree: int, found: bool) -> None:
    moved = evolve(block(Collective(call("all_reduce"))), axes=(Axis(axis, degree),))
    assert bool(list(bad_axes(moved))) is found


@pytest.mark.parametrize(("tokens", "degree", "found"), [(4, 2, False), (2, 4, False), (2, 2, True), (8, 2, True)])
def test_what_is_gathered_is_made_of_the_shares_of_its_ranks(tokens: int, degree: int, found: bool) -> None:
    share = Tensor("share", (("batch", 1), ("sequence", tokens), ("hidden", 4)))
    whole = Collective(call("all_gather"))
    gather = Operator("a/gather", "a", "collective", inputs=(share,), outputs=(X,), collective=whole)
    gathered = Block(OperatorGraph((gather,), ("a",)), 1).with_axis("ep", degree)
    assert bool(list(bad_calls(gathered))) is found


class OfModels:
    name = "mine"

    def accepts(self, source: Any) -> bool:
        return False

    def load(self, source: Any, training: Any) -> Any:
        return source


class OfNetworks(OfModels):
    def load(self, source: Any, strict: bool = False) -> Any:  # type: ignore[override]
        return source


def test_importers_are_told_apart_by_what_they_load() -> None:
    assert kind_of(OfModels()) == "model_importers"
    assert kind_of(OfNetworks()) == "topology_importers"


def test_the_first_objection_is_told_and_the_others_are_counted() -> None:
    tally = Tally()
    for place in ("here", "there", "elsewhere"):
        tally.run("it holds", place, lambda: ["it does not"])
    tally.run("it holds", "at last", list)
    tally.run("it stands", "here", lambda: ["it falls"])
    assert [finding.told for finding in tally.findings()] == [
        "here: it does not (and in 2 more of 4 cases)",
        "here: it falls",
    ]


@pytest.mark.parametrize(("mode", "writing"), [("r", False), ("w", True), ("a", True), ("r+", True), ("x", True)])
def test_files_that_are_opened_for_writing_are_seen(tmp_path: Path, mode: str, writing: bool) -> None:
    path = tmp_path / "file"
    if mode != "x":
        path.write_text("text")

    def ask() -> None:
        with path.open(mode):
            pass

    assert writes(ask) == [str(path)] * writing
