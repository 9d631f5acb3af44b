"""Which degrees and micro-batch sizes a problem lets the search use."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from attrs import frozen

from nest.catalogue import unknown_name
from nest.errors import InputError
from nest.hooks.protocols import Strategy
from nest.spec import Problem

FORESEEN = ("tp", "sp", "cp", "ep")
"""Strategies FORMATS.md names: without a plug-in that offers it, one may be given with degree 1."""

Model = TypeVar("Model")

USUAL_MICRO_BATCHES = (1, 2, 4, 8)
"""Micro-batch sizes tried when the problem names none, samples; published Megatron-LM runs use no other
(arXiv 2104.04473, table 1, and arXiv 2205.05198, table 3)."""


@frozen
class Allowed:
    """Degrees a problem allows one strategy.

    Attributes:
        place: where it says so, such as `fixed.tp`.
        degrees: the degrees; True stands for the highest one possible, False for 1.
        listed: what a list allows, where it or `fixed` speaks of the highest degree: `fixed` is one of the list's then.
    """

    place: str
    degrees: tuple[int | bool, ...]
    listed: "Allowed | None" = None

    def among(self, possible: Sequence[int]) -> tuple[int, ...]:
        """Those of the `possible` degrees, ascending, that are allowed."""
        left = possible if self.listed is None else self.listed.among(possible)
        chosen = {max(left, default=1) if d is True else max(int(d), 1) for d in self.degrees}
        return tuple(degree for degree in left if degree in chosen)

    def told(self) -> str:
        """What is allowed, for people."""
        own = f"{self.place} allows {', '.join(str(d).lower() for d in self.degrees)}"
        return own if self.listed is None else f"{own} and {self.listed.told()}"


def taking_part(problem: Problem, registered: Mapping[str, Strategy]) -> dict[str, Strategy]:
    """The strategies candidates are made with.

    A strategy whose `by_default` is false takes part only where `strategies` or `fixed` names it, or where the stages
    of one plan may differ (`search.mixed`): elsewhere it has little to offer that other decisions have not.
    """
    named = {*problem.strategies, *problem.decided}
    return {
        name: strategy
        for name, strategy in registered.items()
        if problem.search.mixed or name in named or getattr(strategy, "by_default", True)
    }


def allowed_degrees(problem: Problem, registered: Iterable[str]) -> Mapping[str, Allowed]:
    """What the problem says of each strategy in `strategies` and `fixed`; one left out may do as it likes.

    Raises:
        InputError: a degree is not a whole number above 0, or a strategy is unknown or foreseen only.
    """
    known = set(registered)
    found: dict[str, Allowed] = {}
    for name, degrees in problem.strategies.items():
        if name not in known | set(FORESEEN):
            raise unknown_name("strategies", "strategy", name, known | set(FORESEEN), degrees)
        found[name] = Allowed(f"strategies.{name}", tuple(degrees))
    for name, value in problem.decided.items():
        if name in known | set(FORESEEN):
            listed = found.get(name)
            highest = listed is not None and any(degree is True for degree in (value, *listed.degrees))
            decided = (_degree(f"fixed.{name}", value),)
            found[name] = Allowed(f"fixed.{name}", decided, listed if highest else None)
    for name, allowed in found.items():
        for degree in allowed.degrees:
            _degree(allowed.place, degree)
        if name not in known and any(degree not in (1, False) for degree in allowed.degrees):
            raise InputError(
                f"{allowed.told()}, but no registered strategy is called {name!r}: only degree 1 is "
                "possible. `nest strategies` lists what is registered."
            )
    return found


def _degree(place: str, value: object) -> int | bool:
    if isinstance(value, int) and (isinstance(value, bool) or value >= 1):
        return value
    raise InputError(f"{place} is {value!r}; it must be a whole number of at least 1, or true or false.")


def micro_batches(problem: Problem) -> tuple[int, ...]:
    """Samples per micro-batch to plan with, ascending.

    Sizes that cannot deal out the batch without a remainder are left out, unless `training.uneven_batch` is
    set.

    Raises:
        InputError: `fixed.micro_batch` is no size the batch can have, or no size is left.
    """
    training = problem.training
    place, sizes = "training.micro_batch", training.micro_batch
    fixed = problem.decided.get("micro_batch")
    if fixed is not None:
        place, sizes = "fixed.micro_batch", (_fixed_micro_batch(fixed, training.global_batch),)
    if sizes is None:
        sizes = tuple(size for size in USUAL_MICRO_BATCHES if size <= training.global_batch)
    fitting = sorted({s for s in sizes if training.uneven_batch or training.global_batch % s == 0})
    if not fitting:
        raise InputError(
            f"{place}: none of {', '.join(map(str, sizes))} divides training.global_batch "
            f"({training.global_batch}); set training.uneven_batch to allow a remainder."
        )
    return tuple(fitting)


def _fixed_micro_batch(value: object, global_batch: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= global_batch:
        raise InputError(
            f"fixed.micro_batch is {value!r}; it must be a whole number from 1 to training.global_batch "
            f"({global_batch})."
        )
    return value


def chosen(registered: Mapping[str, Model], name: str | None, place: str, kind: str) -> Model:
    """The model called `name`; None: the default, which is what was registered first, a built-in.

    Raises:
        InputError: there is none; the text names `place`.
    """
    wanted = next(iter(registered), "") if name is None else name
    if wanted not in registered:
        raise unknown_name(place, kind, wanted, registered)
    return registered[wanted]
