"""Prices of the latest model, and tables of its searches, kept by the process for the next question."""

from collections.abc import Callable
from json import dumps
from math import inf
from typing import TYPE_CHECKING

from attrs import define, field

from nest.formulate.candidates import MANY
from nest.formulate.formulation import Formulation
from nest.formulate.priced_models import PricedModels, PricingKey
from nest.hooks.loader import only_own
from nest.hooks.registry import Registry
from nest.solve.dp import SearchCache
from nest.solve.effort import Deadline
from nest.spec import Problem

if TYPE_CHECKING:
    from nest.formulate.worth import BoundedCandidates


@define(eq=False, repr=False)
class KeptModel:
    """The model of the latest problem with its prices, and tables of the latest searches.

    Nothing is kept with plug-ins of others, whose code is not tracked, or with a time limit, as then the machine
    decides how much is priced.
    """

    registry: Registry
    name: str | None  # Common key of problems on this model; None: nothing is kept.
    # Of searches; they change neither results nor statistics.
    tables: SearchCache = field(factory=SearchCache, init=False)
    _key: PricingKey | None = field(default=None, init=False)
    _formulation: Formulation | None = field(default=None, init=False)

    @classmethod
    def of_problem(cls, problem: Problem, registry: Registry, deadline: Deadline) -> "KeptModel":
        """Kept state for the model of a self-contained problem."""
        if problem.model is None or deadline.left < inf or not only_own(registry.installed()):
            return cls(registry, None)
        # All that problems have in common that may share prices: whether they do, `PricingKey` decides.
        written = problem.to_dict()
        training = {name: written["training"].get(name) for name in problem.training.of_layers}
        fanouts = [level.get("fanout") for level in written["cluster"].get("levels") or ()]
        name = dumps({"model": written["model"], "training": training, "fanouts": fanouts}, sort_keys=True)
        known = cls(registry, name)
        latest: KeptModel | None = registry.take(LASTING)
        if latest is not None and latest.name == name:
            known._key, known._formulation, known.tables = latest._key, latest._formulation, latest.tables.lasting()
        return known

    def priced(
        self,
        key: PricingKey,
        price: Callable[[], Formulation],
        again: Callable[[Formulation, bool, Formulation | None], Formulation],
        begun: "Callable[[BoundedCandidates], Formulation] | None",
    ) -> Formulation:
        """The model priced with this key, earlier or now; arguments as in `PricedModels.of`.

        `begun` prices only the relevant ones of many candidates; None: all are.
        """
        known, before = self._formulation, self._key
        if known is not None and known.bounded is not None and begun is not None and key == before:
            known = begun(known.bounded)
        elif known is None or before is None or known.bounded is not None or not self._serves(key, before):
            known = price()
        elif key != before:
            known = again(known, False, None)
        self._key, self._formulation = key, known
        return known

    def lend(self, models: PricedModels) -> SearchCache:
        """Lend the latest prices and the tables, which are given away.

        Another thread may ask meanwhile: it shares no table and no lazily priced candidates.
        """
        if self._key is None or self._formulation is None:
            return self.tables.lasting()
        models.know(self._key, self._formulation)
        if self._formulation.bounded is not None:
            self._formulation.bounded.waiting.follow(Deadline(), None)
        else:
            self.registry.keep(LASTING, self)
        tables, self.tables = self.tables.lasting(), SearchCache()
        return tables

    def _serves(self, key: PricingKey, before: PricingKey) -> bool:
        """True if kept graphs serve a key that would make the same ones."""
        blocks = before.blocks == key.blocks and before.cluster.capacities == key.cluster.capacities
        return blocks and before.device == key.device and key.is_repriced(before)

    def keep(self) -> None:
        """Keep what a later problem may need, unless there was no time to price all of it.

        A search may price only some of many candidates; a later one can price others.
        """
        made = self._formulation
        if self.name is None or made is None:
            return
        if made.bounded is not None or (made.complete_to == inf and len(made.candidates) < MANY):
            self.registry.keep(LASTING, self)


LASTING = "model asked about last"
"""Name in the registry. It is taken out while a search uses it: another thread then begins without."""
