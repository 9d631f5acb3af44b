"""A command of nest without one of the things that make it fast: `python -m benchmarks.scale.switched_off NAME ...`.

The product has no such switches. What is put in place says nothing, so that answers are the same and only take longer.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy

SAYS_NOTHING: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "rows": (
        "nest.solve.cpsat.compute_bound:ComputeBound",
        "of_rows",
        lambda _, family: numpy.zeros(len(family.rows)),
    ),
    "room": ("nest.solve.cpsat.room_bound:RoomBound", "excludes", lambda *_: False),
    "contents": ("nest.solve.cpsat.chunk_models:ChunkModels", "outline", lambda *_: None),
    "first-plan": ("nest.solve.dp", "first_plan", lambda *_, **__: None),
}
"""By name: where it stands, its name there, and what stands in its place."""


def switch_off(name: str) -> None:
    """Put what says nothing in its place.

    Raises:
        KeyError: there is no such thing.
        AttributeError: it is not where it was.
    """
    place, attribute, nothing = SAYS_NOTHING[name]
    module, _, owner = place.partition(":")
    held = getattr(import_module(module), owner) if owner else import_module(module)
    getattr(held, attribute)
    setattr(held, attribute, nothing)


if __name__ == "__main__":
    from nest.cli.app import main

    switch_off(sys.argv.pop(1))
    main()
