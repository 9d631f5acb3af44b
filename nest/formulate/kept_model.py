"""What a model costs, and tables of its searches, kept for the next question: by the process and on disk."""

import pickle
from collections.abc import Callable, Hashable, Mapping
from io import BytesIO
from json import dumps
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import numpy
from attrs import define, field

from nest.formulate.candidates import MANY
from nest.formulate.formulation import Formulation
from nest.formulate.priced_models import PricedModels, PricingKey
from nest.graph import Block, OperatorGraph
from nest.hooks.loader import only_own
from nest.hooks.registry import Registry
from nest.io.kept import keep, kept_file, read_kept
from nest.solve.dp import SearchCache
from nest.solve.effort import Deadline
from nest.spec import Problem

if TYPE_CHECKING:
    from nest.formulate.worth import BoundedCandidates

KINDS = ("cost_models", "collective_models", "layer_times", "schedules", "strategies")
"""Kinds of registered objects that candidates and tables refer to."""


@define(eq=False, repr=False)
class KeptModel:
    """The model that a problem asks about as it was priced last, with tables of the last searches.

    The process keeps the one asked about last. Nothing is kept where plug-ins of others take part, whose code nobody
    looks at, or with a time limit, with which it hangs on the machine how much is priced.

    Attributes:
        registry: offers what prices it.
        name: what problems have in common that ask about it; None: nothing is kept.
        path: of the file (`NEST_CACHE`); None: nothing is kept on disk.
        tables: of searches; what they hold does not change what a search finds, nor what it says of itself.
    """

    registry: Registry
    name: str | None
    path: Path | None = None
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
        name = dumps(_name(problem), sort_keys=True)
        known = cls(registry, name, kept_file(name))
        latest = _LATEST.pop(registry, None)
        if latest is not None and latest.name == name:
            known._begin(latest)
        elif known.path is not None:
            found = read_kept(known.path, known._reader)
            if found is not None:
                known._key, known._formulation, known.tables = found
                known._read = known.tables.kinds
        return known

    def _begin(self, latest: "KeptModel") -> None:
        """Begin with the same model as this process asked about it last."""
        self._key, self._formulation, self.tables = latest._key, latest._formulation, latest.tables.lasting()
        if self.path == latest.path:
            self._read = latest._read

    def priced(
        self,
        key: PricingKey,
        price: Callable[[], Formulation],
        again: Callable[[Formulation, bool, Formulation | None], Formulation],
        begun: "Callable[[BoundedCandidates], Formulation] | None",
    ) -> Formulation:
        """The model as it was priced with this key, or else is priced now; arguments as of `PricedModels.of`.

        `begun` prices as many of many candidates as matter now; None: all do.
        """
        known, before = self._formulation, self._key
        if known is not None and known.bounded is not None and begun is not None and key == before:
            known = begun(known.bounded)
        elif known is None or before is None or known.bounded is not None or not self._serves(key, before):
            known, self._anew = price(), True
        elif key != before:
            known = again(known, False, None)
        self._key, self._formulation = key, known
        return known

    def lend(self, models: PricedModels) -> SearchCache:
        """Let others begin with the model as it was priced last, and with the tables, which are given."""
        if self._key is not None and self._formulation is not None:
            if self._formulation.bounded is not None:
                self._formulation.bounded.waiting.follow(Deadline(), None)
            models.know(self._key, self._formulation)
            _LATEST[self.registry] = self
        return self.tables.lasting()

    def _serves(self, key: PricingKey, before: PricingKey) -> bool:
        """Whether graphs that are kept serve a key, of which the very same are made otherwise."""
        blocks = before.blocks == key.blocks and before.cluster.capacities == key.cluster.capacities
        return blocks and before.device == key.device and key.is_repriced(before)

    def keep(self) -> None:
        """Keep what a later problem may need; what is on disk stays there unless it lacks most of that.

        It stays where its prices served, be it with a changed network or batch, of which there may be many and each is
        asked about once; but where it lacks a kind of tables, as that of a problem without a plan does, it is written
        anew. Of many candidates a search may price some only, of which the next one may need others: such a model stays
        with the process, which can price them.

        Raises:
            InputError: the folder that the user names cannot be written to.
        """
        made = self._formulation
        if self.name is None or made is None:
            return
        if made.bounded is not None:
            _LATEST[self.registry] = self
            return
        if made.complete_to < inf or len(made.candidates) >= MANY:
            return
        lasting = self.tables.lasting()
        if self.path is not None and (self._anew or not lasting.kinds <= self._read):
            keep(self.path, (self._key, made, lasting), self._writer)
            self._read = lasting.kinds
        _LATEST[self.registry] = self

    def _writer(self, file: Any) -> pickle.Pickler:
        return _Writer(file, self.registry)

    def _reader(self, file: Any) -> pickle.Unpickler:
        return _Reader(file, self.registry)


_LATEST: WeakKeyDictionary[Registry, KeptModel] = WeakKeyDictionary()
"""By registry, the model that this process asked about last. It is out while a search uses it: what another thread asks
meanwhile begins without."""


def _registered(kind: str, name: str) -> Any:
    """The registered object, where a registry reads what is kept (`_Reader.find_class`)."""
    raise pickle.UnpicklingError(f"no registry has {kind} {name}")


class _KeptBlock(Block):
    """A block whose graph is read when it is asked for, and which is one like others from then on.

    A search asks for those of the plans that it tells of. All graphs of Llama 3 70B on 128 H100 take as long to read as
    all else that is kept of it (2026-11-28).
    """

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """What `evolve` makes of one, which is a block like others."""
        return Block(*arguments, **options)

    def __getattr__(self, name: str) -> OperatorGraph:
        read = vars(self).get("read")
        if name != "graph" or read is None:
            raise AttributeError(name)
        vars(self)["graph"] = found = read()
        object.__setattr__(self, "__class__", Block)
        del vars(self)["read"]
        return cast("OperatorGraph", found)


def _block(graph: bytes, others: Mapping[str, Any]) -> Block:
    """The block with such a graph and other attributes, where a registry reads what is kept (`_Reader.find_class`)."""
    raise pickle.UnpicklingError("no registry has the graph")


_FIRST = itemgetter(0)


class _Writer(pickle.Pickler):
    """Writes registered objects as their names, numbers that nobody changes once, and graphs of blocks each apart."""

    def __init__(self, file: Any, registry: Registry) -> None:
        super().__init__(file, protocol=5)
        self._registry = registry
        self._same: dict[Hashable, Any] = {}
        self._names = {id(each): (kind, name) for kind in KINDS for name, each in getattr(registry, kind)().items()}

    # `persistent_id` would be asked about each text and number, too, which takes half of the time.
    def reducer_override(self, what: Any) -> Any:
        """How to make the object that a name has, a block or numbers; of others, as pickle does."""
        if isinstance(what, Block):
            graph = BytesIO()
            _Writer(graph, self._registry).dump(what.graph)
            others = {name: value for name, value in vars(what).items() if name != "graph"}
            return _block, (graph.getvalue(), {**others, "called": what.called})
        if type(what) is numpy.ndarray and what.flags.c_contiguous and not what.dtype.hasobject:
            # As pickle does, in one call in place of three: most of what is kept are small arrays.
            data = bytearray(what) if what.flags.writeable else what.tobytes()
            # Half of what a candidate has is like another's, such as what modes that recompute nothing take.
            same = what if what.flags.writeable else self._same.setdefault((what.shape, what.dtype, data), what)
            return (numpy.ndarray, (what.shape, what.dtype, data)) if same is what else (_FIRST, ((same,),))
        named = self._names.get(id(what))
        return NotImplemented if named is None else (_registered, named)


class _Reader(pickle.Unpickler):
    """Reads names as the objects that are registered."""

    def __init__(self, file: Any, registry: Registry) -> None:
        super().__init__(file)
        self._registry = registry

    def find_class(self, module: str, name: str) -> Any:
        """What a file names; in place of `_registered` and `_block`, what makes the object."""
        found = super().find_class(module, name)
        return {_registered: self._own, _block: self._block}.get(found, found)

    def _own(self, kind: str, name: str) -> Any:
        return getattr(self._registry, kind)()[name]

    def _block(self, graph: bytes, others: Mapping[str, Any]) -> Block:
        block = object.__new__(_KeptBlock)
        vars(block).update(others, read=lambda: _Reader(BytesIO(graph), self._registry).load())
        return block


def _name(problem: Problem) -> dict[str, Any]:
    """What problems have in common that share a file: not all of it, as `PricingKey` decides whether it serves."""
    written = problem.to_dict()
    training = {name: written["training"].get(name) for name in problem.training.of_layers}
    fanouts = [level.get("fanout") for level in written["cluster"].get("levels") or ()]
    return {"model": written["model"], "training": training, "fanouts": fanouts}
