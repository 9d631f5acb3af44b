"""Collective models that exist nowhere, as distributions might bring them, for tests of what a model is told."""

from collections.abc import Sequence
from math import log2, prod
from typing import Any

from nest.hooks import hook
from nest.hooks.registry import Registry, registry
from nest.instance import Level


class Trees:
    """Flat rings, and trees of switches that reduce, as `tests.oracle.collectives` has them; no bytes pay latency."""

    name = "trees"

    def time(
        self,
        kind: str,
        bytes: float,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> float:
        assert members is not None
        worst = max(index for index, count in enumerate(shape) if count > 1) if members > 1 else 0
        latency, bandwidth = levels[worst].latency, min(level.bandwidth for level in levels[: worst + 1])
        if kind == "all_reduce":
            return 2 * log2(members) * latency + (members > 1) * bytes / bandwidth
        return (members - 1) * latency + (members - 1) / members * bytes / bandwidth


class WithArrays(Trees):
    """The same, which also prices many sizes at once."""

    def times(self, kind: str, sizes: Any, shape: Sequence[int], levels: Sequence[Level], **told: Any) -> Any:
        return self.time(kind, sizes, shape, levels, **told)


class Uncounted:
    """A model written before models were told the number of members: it takes that of the shape."""

    name = "trees"

    def time(self, kind: str, bytes: float, shape: Sequence[int], levels: Sequence[Level]) -> float:  # noqa: A002
        return Trees().time(kind, bytes, shape, levels, prod(shape))


class Plugin:
    """What a distribution with these models would bring."""

    def __init__(self, *models: object) -> None:
        self.models = models

    @hook
    def nest_collective_models(self) -> list[Any]:
        return list(self.models)


def with_models(*models: object) -> Registry:
    """The registry, with these models of collectives."""
    return registry([Plugin(*models)])
