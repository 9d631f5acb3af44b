"""Tables of the stages that are fast enough, kept for what asks for the same."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from math import inf
from typing import Generic, TypeVar

from attrs import define, field

MOST_BYTES = 256 * 2**20
"""Most bytes of tables kept: without any, Mixtral 8x7B on 64 H100 takes 1.4 times as long (2026-11-23)."""

T = TypeVar("T")


@define(eq=False, repr=False)
class RecentTables(Generic[T]):
    """Those used last, `MOST_BYTES` in all."""

    _known: OrderedDict[Hashable, tuple[float, T | None, int]] = field(factory=OrderedDict, init=False)
    _bytes: int = field(default=0, init=False)

    def of(self, key: Hashable, time_limit: float, make: Callable[[], tuple[T, int]]) -> tuple[T, bool]:
        """Tables of at least the stages of at most `time_limit` seconds, and whether they are of no others.

        `make` makes those, and says how many bytes they take.
        """
        limit, tables, size = self._known.pop(key, (-inf, None, 0))
        if tables is None or limit < time_limit:
            self._bytes -= size
            limit, (tables, size) = time_limit, make()
            self._bytes += size
        self._known[key] = limit, tables, size
        while self._bytes > MOST_BYTES and len(self._known) > 1:
            self._bytes -= self._known.popitem(last=False)[1][2]
        return tables, limit == time_limit
