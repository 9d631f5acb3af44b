"""Networks that a problem describes by their parameters: a record of `nest.spec` each."""

from collections.abc import Callable
from typing import Any

from attrs import frozen

from nest.instance.pairs import Pairs
from nest.network.graph import LinkGraph


@frozen
class ParametricNetwork:
    """An importer of one kind of network.

    Attributes:
        name: the key under which problems describe it.
        spec: the record it is read into.
        build: its devices, switches and links, or its pairs.
    """

    name: str
    spec: type
    build: Callable[[Any], LinkGraph | Pairs]

    def accepts(self, source: Any) -> bool:
        """Whether `source` describes such a network."""
        return isinstance(source, self.spec)

    def load(self, source: Any) -> LinkGraph | Pairs:
        """The network.

        Raises:
            InputError: it has too many devices, or fewer than two, or a value cannot be.
        """
        return self.build(source)
