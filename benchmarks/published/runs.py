"""The published runs: what is told of each, and its problem."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.io import read_mapping

FOLDER = Path(__file__).parent


@frozen
class PublishedRun:
    """A run that somebody published.

    Attributes:
        name: of its problem.
        title: for tables.
        batch_time: seconds of a step, as published or converted.
        told: what was published.
        formula: how the step time follows from that; empty where it is told itself.
        sources: addresses, each with the place in it.
        assumed: what they leave open.
        problem: with the published layout under `fixed`.
    """

    name: str
    title: str
    batch_time: float
    told: str
    sources: tuple[str, ...]
    assumed: str
    problem: dict[str, Any]
    formula: str = ""

    @property
    def open(self) -> dict[str, Any]:
        """The problem with nothing decided."""
        return {key: value for key, value in self.problem.items() if key != "fixed"}


def published(names: Sequence[str] = ()) -> list[PublishedRun]:
    """The runs called `names`; all where there are none, in the order of their table.

    Raises:
        InputError: there is no run of a name.
    """
    with (FOLDER / "runs.toml").open("rb") as file:
        table = tomllib.load(file)
    unknown = [name for name in names if name not in table]
    if unknown:
        raise InputError(f"{unknown[0]}: no run of this name was published; there are {', '.join(table)}.")
    return [_run(name, told) for name, told in table.items() if not names or name in names]


def _run(name: str, told: dict[str, Any]) -> PublishedRun:
    problem = dict(read_mapping(FOLDER / "problems" / f"{name}.yaml").mapping)
    return PublishedRun(name=name, problem=problem, **{**told, "sources": tuple(told["sources"])})
