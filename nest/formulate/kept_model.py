"""What a model costs, and tables of its searches, kept on disk (`NEST_CACHE`) for the next question about it."""

import pickle
from collections.abc import Callable
from json import dumps
from math import inf
from pathlib import Path
from typing import Any

from attrs import define, field

from nest.formulate.candidates import MANY
from nest.formulate.formulation import Formulation
from nest.formulate.priced_models import PricedModels, PricingKey
from nest.hooks.loader import only_own
from nest.hooks.registry import Registry
from nest.io.kept import keep, kept_file, read_kept
from nest.solve.dp import SearchCache
from nest.solve.effort import Deadline
from nest.spec import Problem

KINDS = ("cost_models", "collective_models", "layer_times", "schedules", "strategies")
"""Kinds of registered objects that candidates and tables refer to."""


@define(eq=False, repr=False)
class KeptModel:
    """The model that a problem asks about as it was priced last, with tables of the last searches.

    Nothing is kept where plug-ins of others take part, whose code nobody looks at, or with a time limit, with which it
    hangs on the machine how much is priced.

    Attributes:
        registry: offers what prices it.
        path: of the file; None: nothing is kept.
        tables: of searches; what they hold does not change what a search finds, nor what it says of itself.
    """

    registry: Registry
    path: Path | None
    tables: SearchCache = field(factory=SearchCache, init=False)
    _key: PricingKey | None = field(default=None, init=False)
    _formulation: Formulation | None = field(default=None, init=False)
    _read: frozenset[str] = field(default=frozenset(), init=False)
    _anew: bool = field(default=False, init=False)

    @classmethod
    def of_problem(cls, problem: Problem, registry: Registry, deadline: Deadline) -> "KeptModel":
        """What is kept of the model of a self-contained problem."""
        if problem.model is None or deadline.left < inf or not only_own(registry.installed()):
            return cls(registry, None)
        path = kept_file(dumps(_name(problem), sort_keys=True))
        known = cls(registry, path)
        found = None if path is None else read_kept(path, known._reader)
        if found is not None:
            known._key, known._formulation, known.tables = found
            known._read = known.tables.kinds
        return known

    def priced(
        self,
        key: PricingKey,
        price: Callable[[], Formulation],
        again: Callable[[Formulation, bool], Formulation],
    ) -> Formulation:
        """The model as it was priced with this key, or else is priced now; arguments as of `PricedModels.of`."""
        known, before = self._formulation, self._key
        if known is None or before is None or not self._serves(key, before):
            known, self._anew = price(), True
        elif key != before:
            known = again(known, False)
        self._key, self._formulation = key, known
        return known

    def lend(self, models: PricedModels) -> None:
        """Let others begin with the model as it was priced last."""
        if self._key is not None and self._formulation is not None:
            models.know(self._key, self._formulation)

    def _serves(self, key: PricingKey, before: PricingKey) -> bool:
        """Whether graphs that are kept serve a key, of which the very same are made otherwise."""
        blocks = before.blocks == key.blocks and before.cluster.capacities == key.cluster.capacities
        return blocks and before.device == key.device and key.is_repriced(before)

    def keep(self) -> None:
        """Write what a later problem may need, unless most of it is there.

        What is on disk stays where its prices served, be it with a changed network or batch, of which there may be many
        and each is asked about once; but where it lacks a kind of tables, as that of a problem without a plan does. Of
        many candidates a search may price some only, of which the next one would need others.

        Raises:
            InputError: the folder cannot be written to.
        """
        made = self._formulation
        if self.path is None or made is None:
            return
        whole, lasting = made.complete_to == inf and made.up_to is None, self.tables.lasting()
        if whole and len(made.candidates) < MANY and (self._anew or not lasting.kinds <= self._read):
            keep(self.path, (self._key, made, lasting), self._writer)

    def _writer(self, file: Any) -> pickle.Pickler:
        return _Writer(file, self.registry)

    def _reader(self, file: Any) -> pickle.Unpickler:
        return _Reader(file, self.registry)


class _Writer(pickle.Pickler):
    """Writes registered objects as their names."""

    def __init__(self, file: Any, registry: Registry) -> None:
        super().__init__(file, protocol=5)
        self._names = {id(each): (kind, name) for kind in KINDS for name, each in getattr(registry, kind)().items()}

    def persistent_id(self, what: Any) -> tuple[str, str] | None:
        return self._names.get(id(what))


class _Reader(pickle.Unpickler):
    """Reads names as the objects that are registered."""

    def __init__(self, file: Any, registry: Registry) -> None:
        super().__init__(file)
        self._registry = registry

    def persistent_load(self, name: tuple[str, str]) -> Any:
        kind, own = name
        return getattr(self._registry, kind)()[own]


def _name(problem: Problem) -> dict[str, Any]:
    """What problems have in common that share a file: not all of it, as `PricingKey` decides whether it serves."""
    written = problem.to_dict()
    training = {name: written["training"].get(name) for name in problem.training.of_layers}
    fanouts = [level.get("fanout") for level in written["cluster"].get("levels") or ()]
    return {"model": written["model"], "training": training, "fanouts": fanouts}
