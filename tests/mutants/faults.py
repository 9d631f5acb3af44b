"""Faults: small mistakes in one module each, and the test that sees them (the tables in `planted/`)."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from attrs import frozen

REPOSITORY = Path(__file__).resolve().parents[2]
TABLES = Path(__file__).with_name("planted")


@frozen
class Fault:
    """A mistake somebody could have made.

    Attributes:
        name: of the fault; unique.
        room: whose table lists it.
        means: what goes wrong, in a sentence.
        file: the module, from the repository's root: of nest, or of a plug-in below its `src`.
        old: what stands there, once.
        new: what stands there with the fault.
        caught_by: the test of the default run that fails with it.
        among: which of the test's parameters are enough, as pytest's `-k` takes it; empty: all, in their order.
    """

    name: str
    room: str
    means: str
    file: str
    old: str
    new: str
    caught_by: str
    among: str = ""

    @property
    def module(self) -> str:
        """The module's name, which begins below the `src` of a plug-in."""
        path = self.file.rpartition("/src/")[2]
        return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def path(self) -> Path:
        """Where the module is."""
        return REPOSITORY / self.file

    @property
    def catching(self) -> tuple[str, ...]:
        """What pytest is told to run the test that catches it."""
        return (self.caught_by, "-k", self.among) if self.among else (self.caught_by,)

    def source(self) -> str:
        """The module with the fault.

        Raises:
            ValueError: what the fault replaces does not stand there once.
        """
        text = self.path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} has {text.count(self.old)} times {self.old!r}, not once")
        return text.replace(self.old, self.new)


@cache
def faults() -> tuple[Fault, ...]:
    """Every fault, room by room."""
    tables: dict[str, list[dict[str, Any]]] = {
        path.stem: tomllib.loads(path.read_text())["fault"] for path in sorted(TABLES.glob("*.toml"))
    }
    return tuple(Fault(room=room, **row) for room, rows in tables.items() for row in rows)


def named(name: str) -> Fault:
    """The fault of that name.

    Raises:
        KeyError: there is none.
    """
    return {fault.name: fault for fault in faults()}[name]
